"""Registry and definition of metrics.

A metric is a pure function of one record. It never calls a model and reads only the record, so a
run can be scored again at any time.
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
from ragbench.user_code import is_ours, load_object, wrap_user_errors

T = TypeVar("T")
Score = Callable[[Record], float | None]


def once(function: Callable[[Record], T]) -> Callable[[Record], T]:
    """Cache the result of `function` in each record, because many metrics share it."""

    @wraps(function)
    def cached(record: Record) -> T:
        if function not in record.memo:
            record.memo[function] = function(record)
        value: T = record.memo[function]
        return value

    return cached


@dataclass(frozen=True)
class Metric:
    """Named score of one record.

    Attributes:
        name: Name.
        score: Function from a record to a number, or None if the record lacks the data. A failed
            record has the `worst` score, or its actual cost. An error of a plug-in becomes one
            line.
        description: Description in lists.
        source: Paper or script that defines the metric.
        worst: Score of a failed record.
        higher_is_better: True if higher scores are better.
        score_range: Least and greatest score. None if there are no bounds.
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
            with wrap_user_errors(score, f"metric {self.name} on question {record.qid}"):
                return score(record)

        object.__setattr__(self, "score", blamed)


#: Precision and recall of a family, such as `sp_recall`, are available by name but not listed.
METRICS: Registry[Metric] = Registry("metric", package="ragbench.metrics")

#: Metrics with a cut-off, such as `recall@5`: the part before the @ -> function of the cut-off.
CUTOFF_METRICS: Registry[Callable[[int], Metric]] = Registry("metric", package="ragbench.metrics")


def add(metric: Metric) -> None:
    """Register `metric` under its name."""
    METRICS.register(metric.name)(metric)


def add_metric(name: str, score: Score, description: str, *, source: str = "") -> Metric:
    """Register a metric in [0, 1] whose failed records score 0.

    Args:
        name: Name.
        score: Score of a record that has an answer.
        description: Description in lists.
        source: Paper or script that defines the metric.

    Returns:
        The metric.
    """

    @wraps(score)  # The owner of `score` is named in its errors.
    def scored(record: Record) -> float | None:
        if record.failed:
            return 0.0
        return score(record)

    return METRICS.register(name)(Metric(name, scored, description, source))


def add_amount(name: str, score: Score, description: str, *, source: str = "") -> None:
    """Register an amount without bounds, of which less is better.

    A failed record has its own amount.

    Args:
        name: Name.
        score: Amount of a record.
        description: Description in lists.
        source: Paper or script that defines the metric.
    """
    add(Metric(name, score, description, source, higher_is_better=False, score_range=None))


@lru_cache(maxsize=256)
def get_metric(name: str) -> Metric:
    """Return the metric `name`. Creates metrics with a cut-off, such as `recall@5`.

    Raises:
        UnknownNameError: There is no such metric. The message has similar names.
    """
    match = re.fullmatch(r"(\w+)@([1-9]\d*)", name)
    if match and match[1] in CUTOFF_METRICS.names():
        return CUTOFF_METRICS.get(match[1])(int(match[2]))
    return METRICS.get(name)


def metric_function(spec: str) -> Callable[..., Any]:
    """Return the function that `spec` names, or that is registered under this name."""
    function: Callable[..., Any]
    if is_kept(spec):
        function = find(spec)
        return function
    function = load_object(spec, "--metric")
    if not callable(function):
        raise ConfigError(f"--metric {spec} is not a function")
    return function


def keep_metric(function: Callable[..., Any], *, name: str = "") -> str:
    """Register a user's metric in this process.

    Args:
        function: Function of an example and a prediction.
        name: Name in the identity of a compile.

    Returns:
        The name of the metric in configs.

    Raises:
        ConfigError: `function` is not callable.
    """
    if not callable(function):
        raise ConfigError(f"metric={repr(function)[:80]} is neither a name nor a function")
    label = getattr(function, "__name__", type(function).__name__)
    get_metric.cache_clear()  # The name may now refer to another function.
    return keep(function, f"{PREFIX}{label}", name=name)


def range_of(function: Callable[..., Any]) -> tuple[float, float]:
    """Return the least and greatest score of a user's metric: its `range`, else [0, 1]."""
    low, high = getattr(function, "range", (0.0, 1.0))
    return float(low), float(high)


def read_score(reply: Any, scores: tuple[float, float] = (0.0, 1.0)) -> float:
    """Convert the result of a metric to a number.

    Args:
        reply: A bool, a number (also of numpy), or an object with a `score`.
        scores: Least and greatest score.

    Returns:
        The score.

    Raises:
        ValueError: `reply` has another type, is not finite, or is outside `scores`.
    """
    score = getattr(reply, "score", reply)
    if callable(getattr(score, "item", None)):  # A scalar of numpy.
        score = score.item()
    if not isinstance(score, bool | int | float):
        raise ValueError(f"it returned {type(score).__name__}, not a number")
    low, high = scores
    if not low <= score <= high:  # Rejects NaN too.
        raise ValueError(
            f"it returned {score}, which is not from {low:g} to {high:g}; set its attribute "
            "range = (least, greatest) for other scores"
        )
    return float(score)


@METRICS.outside
def own_metric(spec: str) -> Metric:
    """Return the metric of the function that `spec` names, called as DSPy calls a metric.

    The example has `question`, `answer`, `answers` and its other fields, also by the user's names.
    The prediction has `answer`, `passages` and the other outputs of the module. `read_score`
    converts the result.

    Raises:
        ConfigError: The function cannot be imported, or the user did not name it.
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

    text = f"user function {spec}"
    return Metric(spec, score, text, worst=scores[0], score_range=scores)


def metric_names() -> list[str]:
    """Return the sorted names of all metrics. `recall@K` stands for any whole K >= 1."""
    return sorted([*METRICS.names(), *(f"{name}@K" for name in CUTOFF_METRICS.names())])
