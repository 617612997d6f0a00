"""The registry of metrics, and what a metric is.

A metric is a pure function of one record: it never asks a model and never looks at anything but the
record, so a run can be scored again at any time.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

from ragbench.errors import UnknownNameError
from ragbench.registry import Registry

Record = Mapping[str, Any]
T = TypeVar("T")


class View(dict[str, Any]):
    """A record while many metrics score it: it keeps what `once` has worked out."""

    def __init__(self, record: Record) -> None:
        super().__init__(record)
        self.known: dict[Any, Any] = {}
        self.failed = failed(record)


def once(function: Callable[[Record], T]) -> Callable[[Record], T]:
    """`function`, worked out once for a `View`; for any other record each time."""

    @wraps(function)
    def found(record: Record) -> T:
        if not isinstance(record, View):
            return function(record)
        known = record.known
        if function in known:
            value: T = known[function]
        else:
            value = known[function] = function(record)
        return value

    return found


@dataclass(frozen=True)
class Metric:
    """A named score of one record.

    `score` takes a record as it is stored (a mapping; see `experiments.records`) and gives a
    number in `score_range` (None: unbounded), or None where the record has not what it needs; a
    failed record has the `worst` score, but what it spent where the metric is of spending. `source`
    names the paper or script that defines it.
    """

    name: str
    score: Callable[[Record], float | None]
    description: str
    source: str = ""
    worst: float = 0.0
    higher_is_better: bool = True
    score_range: tuple[float, float] | None = (0.0, 1.0)


METRICS: Registry[Metric] = Registry("metric", package="ragbench.metrics")

#: Metrics with a cut-off, such as `recall@5`: the part before the @ -> a maker from the cut-off.
CUTOFF_METRICS: Registry[Callable[[int], Metric]] = Registry("metric", package="ragbench.metrics")


def failed(record: Record) -> bool:
    """Whether the question got no answer: an error ended it, or none was given."""
    if isinstance(record, View):
        return record.failed
    return record.get("failure") is not None or record.get("answer") is None


def add_metric(
    name: str,
    score: Callable[[Record], float | None],
    description: str,
    *,
    source: str = "",
    higher_is_better: bool = True,
) -> Metric:
    """Register `score` as a metric in [0, 1] whose failed records score 0, and return it.

    `score` sees only records that have an answer.
    """
    metric = Metric(name, _zero_if_failed(score), description, source, 0.0, higher_is_better)
    return METRICS.register(name)(metric)


def _zero_if_failed(score: Callable[[Record], float | None]) -> Callable[[Record], float | None]:
    return lambda record: 0.0 if failed(record) else score(record)


@lru_cache(maxsize=256)
def get_metric(name: str) -> Metric:
    """The metric called `name`; `recall@5` and its like are made for their cut-off.

    Raises:
        UnknownNameError: there is none; the message has the near names.
    """
    match = re.fullmatch(r"(\w+)@([1-9]\d*)", name)
    if match and match[1] in CUTOFF_METRICS.names():
        return CUTOFF_METRICS.get(match[1])(int(match[2]))
    if name not in METRICS.names():
        raise UnknownNameError("metric", name, metric_names())
    return METRICS.get(name)


def metric_names() -> list[str]:
    """All names that `get_metric` takes, sorted; `recall@K` stands for any whole K >= 1."""
    return sorted([*METRICS.names(), *(f"{name}@K" for name in CUTOFF_METRICS.names())])
