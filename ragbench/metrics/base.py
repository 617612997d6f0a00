"""The registry of metrics, and what a metric is.

A metric is a pure function of one record: it never asks a model and never looks at anything but the
record, so a run can be scored again at any time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

from ragbench.errors import ConfigError
from ragbench.external import PREFIX, find, is_kept, keep
from ragbench.record import Record
from ragbench.registry import Registry
from ragbench.user_code import blamed_on, is_ours, load_object

T = TypeVar("T")
Score = Callable[[Record], float | None]


def once(function: Callable[[Record], T]) -> Callable[[Record], T]:
    """`function`, worked out once for each record: many metrics share it."""

    @wraps(function)
    def cached(record: Record) -> T:
        if function not in record.memo:
            record.memo[function] = function(record)
        value: T = record.memo[function]
        return value

    return cached


@dataclass(frozen=True)
class Metric:
    """A named score of one record.

    `score` takes a record and gives a number in `score_range` (None: unbounded), or None where the
    record has not what it needs. A failed record has the `worst` score; a metric of spending gives
    what the failed question spent. `source` names the paper or script that defines the metric.
    Errors of a plug-in's `score` are one line.
    """

    name: str
    score: Score
    description: str
    source: str = ""
    worst: float = 0.0
    higher_is_better: bool = True
    score_range: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        score = self.score
        if is_ours(getattr(score, "func", score)):
            return

        @wraps(score)
        def blamed(record: Record) -> float | None:
            with blamed_on(score, f"metric {self.name} on question {record.qid}"):
                return score(record)

        object.__setattr__(self, "score", blamed)


#: Precision and recall of a family, such as `sp_recall`, are found by name and not listed.
METRICS: Registry[Metric] = Registry("metric", package="ragbench.metrics")

#: Metrics with a cut-off, such as `recall@5`: the part before the @ -> a maker from the cut-off.
CUTOFF_METRICS: Registry[Callable[[int], Metric]] = Registry("metric", package="ragbench.metrics")


def add(metric: Metric) -> None:
    """Register `metric` under its name."""
    METRICS.register(metric.name)(metric)


def add_metric(name: str, score: Score, description: str, *, source: str = "") -> Metric:
    """Register `score` as a metric in [0, 1] whose failed records score 0, and return it.

    `score` sees only records that have an answer.
    """

    @wraps(score)  # whose it is decides who is blamed for its errors
    def scored(record: Record) -> float | None:
        if record.failed:
            return 0.0
        return score(record)

    return METRICS.register(name)(Metric(name, scored, description, source))


def add_amount(name: str, score: Score, description: str, *, source: str = "") -> None:
    """Register an amount without bounds, of which less is better; a failed record has its own."""
    add(Metric(name, score, description, source, higher_is_better=False, score_range=None))


@lru_cache(maxsize=256)
def get_metric(name: str) -> Metric:
    """The metric called `name`; `recall@5` and its like are made for their cut-off.

    UnknownNameError, with the near names, where there is none.
    """
    match = re.fullmatch(r"(\w+)@([1-9]\d*)", name)
    if match and match[1] in CUTOFF_METRICS.names():
        return CUTOFF_METRICS.get(match[1])(int(match[2]))
    return METRICS.get(name)


def metric_function(spec: str) -> Callable[..., Any]:
    """The function that `spec` names, or that was handed over under this name."""
    function: Callable[..., Any]
    if is_kept(spec):
        function = find(spec)
        return function
    function = load_object(spec, "--metric")
    if not callable(function):
        raise ConfigError(f"--metric {spec} is no function")
    return function


def keep_metric(function: Callable[..., Any], *, name: str = "") -> str:
    """Return the name of a user's metric in configs of this process.

    `name` is the caller's word for it, which a compile is found by.
    """
    if not callable(function):
        raise ConfigError(f"metric={repr(function)[:80]} is neither a name nor a function")
    label = getattr(function, "__name__", type(function).__name__)
    get_metric.cache_clear()  # the same name may stand for another function now
    return keep(function, f"{PREFIX}{label}", name=name)


def range_of(function: Callable[..., Any]) -> tuple[float, float]:
    """The least and the greatest score of a person's own metric: its `range`, else [0, 1]."""
    low, high = getattr(function, "range", (0.0, 1.0))
    return float(low), float(high)


def read_score(reply: Any, scores: tuple[float, float] = (0.0, 1.0)) -> float:
    """The score that a metric gave: a bool, a number also of numpy, or what has a `score`.

    Raises:
        ValueError: it is none of these, not finite, or outside of `scores`.
    """
    score = getattr(reply, "score", reply)
    if callable(getattr(score, "item", None)):  # of numpy
        score = score.item()
    if not isinstance(score, bool | int | float):
        raise ValueError(f"it gave {type(score).__name__}, not a number")
    low, high = scores
    if not low <= score <= high:  # NaN is not, either
        raise ValueError(
            f"it gave {score}, which is not from {low:g} to {high:g}; set its attribute range = "
            "(least, greatest) where its scores are others"
        )
    return float(score)


@METRICS.outside
def own_metric(spec: str) -> Metric:
    """The metric of the function that `spec` names, called as DSPy calls a metric.

    The example has `question`, `answer`, `answers` and its other fields, by the names of the person
    too; the prediction has `answer`, `passages` and the module's other outputs. What the function
    gives is read by `read_score`. ConfigError where it cannot be imported, or the user
    did not name it.
    """
    import dspy

    function = metric_function(spec)
    scores = range_of(function)

    @wraps(function)
    def score(record: Record) -> float | None:
        if record.failed:
            return scores[0]
        fields = dict(record.extra)
        outputs = fields.pop("outputs", {})
        fields |= fields.pop("own_fields", {})
        fields |= {"question": record.question, "answer": record.answers[0]}
        example = dspy.Example(**fields, answers=list(record.answers)).with_inputs("question")
        fields = {**outputs, "answer": record.answer, "passages": record.passages}
        prediction = dspy.Prediction(**fields)
        return read_score(function(example, prediction), scores)

    text = f"your own function {spec}"
    return Metric(spec, score, text, worst=scores[0], score_range=scores)


def metric_names() -> list[str]:
    """All names that `get_metric` takes, sorted; `recall@K` stands for any whole K >= 1."""
    return sorted([*METRICS.names(), *(f"{name}@K" for name in CUTOFF_METRICS.names())])
