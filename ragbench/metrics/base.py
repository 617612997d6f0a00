"""The registry of metrics, and what a metric is.

A metric is a pure function of one record: it never asks a model and never looks at anything but the
record, so a run can be scored again at any time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeVar

from ragbench.errors import UnknownNameError
from ragbench.own_code import blamed_on, is_ours
from ragbench.record import Record
from ragbench.registry import Registry

T = TypeVar("T")


def once(function: Callable[[Record], T]) -> Callable[[Record], T]:
    """`function`, worked out once for each record: many metrics share it."""

    @wraps(function)
    def cached(record: Record) -> T:
        if function in record.memo:
            value: T = record.memo[function]
        else:
            value = record.memo[function] = function(record)
        return value

    return cached


@dataclass(frozen=True)
class Metric:
    """A named score of one record.

    `score` takes a record and gives a
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

    def __post_init__(self) -> None:
        if not is_ours(self.score):
            object.__setattr__(self, "score", _blamed(self.name, self.score))


def _blamed(name: str, score: Callable[[Record], float | None]) -> Callable[[Record], float | None]:
    """`score` of a plug-in, whose errors are one line."""

    @wraps(score)
    def checked(record: Record) -> float | None:
        with blamed_on(score, f"metric {name} on question {record.qid}"):
            return score(record)

    return checked


METRICS: Registry[Metric] = Registry("metric", package="ragbench.metrics")

#: Metrics with a cut-off, such as `recall@5`: the part before the @ -> a maker from the cut-off.
CUTOFF_METRICS: Registry[Callable[[int], Metric]] = Registry("metric", package="ragbench.metrics")


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
    @wraps(score)  # whose it is decides who is blamed for its errors
    def scored(record: Record) -> float | None:
        return 0.0 if record.failed else score(record)

    return scored


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
