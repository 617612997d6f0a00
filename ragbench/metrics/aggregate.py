"""Summary of a run: means over all of its records.

It is a pure function of records, JSON-ready. A mean covers every record that the metric can score.
Failed records have the metric's worst score. If no answered record has a metric (no citation, no
known price), the metric is omitted, so that failures alone do not make a score.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ragbench.metrics.base import get_metric
from ragbench.metrics.stats.estimates import Bounds, Interval, mean_interval
from ragbench.metrics.support import evidence_kind, support_kind
from ragbench.metrics.text import answer_kind
from ragbench.record import Record

#: Metrics of a summary by default.
DEFAULT_METRICS = (
    *("em", "f1", "contain", "answer_length", "sp_f1", "joint_f1", "evidence_f1", "support_f1"),
    *("recall", "all_recall", "recall@5", "mrr", "ndcg", "search_recall"),
    *("hops_to_gold", "retrieved_tokens"),
)
#: Name -> function that returns the group of a record, or None.
GROUPINGS: Mapping[str, Callable[[Record], Hashable | None]] = {
    "qtype": lambda record: record.qtype or None,
    "hops": lambda record: record.hops,
    "answer_kind": lambda record: answer_kind(record.answers[0]),
}
#: Scores of all records by metric, in the order of the records.
Columns = Mapping[str, Sequence[float | None]]


def summarize(
    records: Sequence[Record],
    columns: Columns,
    clusters: Mapping[str, Hashable] = MappingProxyType({}),
) -> dict[str, Any]:
    """Summarize `records`, JSON-ready.

    Args:
        records: Records in the order of their question ids.
        columns: Scores by metric, from `score_columns`.
        clusters: Cluster of each question by id. A question that is missing is its own cluster.

    Returns:
        Numbers of questions and failures, means of the metrics, and kinds of support.
    """
    failures = []
    for record in records:
        if record.failed:
            failures.append(record.failure.name if record.failure else "program/no answer")
    return {
        "n": len(records),
        "n_failed": len(failures),
        "failures": _counts(failures),
        "scores": _means(records, columns, clusters),
        "support_kinds": _counts(map(support_kind, records)),
        "evidence_kinds": _counts(map(evidence_kind, records)),
    }


def score_columns(
    records: Sequence[Record], metrics: Sequence[str]
) -> dict[str, list[float | None]]:
    """Score every record with every metric.

    Args:
        records: Records.
        metrics: Names of metrics.

    Returns:
        For each metric the score of each record, in the order of `records`.

    Raises:
        UnknownNameError: A metric does not exist.
    """
    chosen = list(map(get_metric, dict.fromkeys(metrics)))
    columns: dict[str, list[float | None]] = {metric.name: [] for metric in chosen}
    # Score record by record, so that shared intermediate results are cached.
    for record in records:
        for metric in chosen:
            columns[metric.name].append(metric.score(record))
    return columns


def _means(
    records: Sequence[Record], columns: Columns, clusters: Mapping[str, Hashable]
) -> dict[str, dict[str, Any]]:
    scored: dict[str, dict[str, Any]] = {}
    all_failed = all(record.failed for record in records)
    for name, column in columns.items():
        values = {}
        answered = False
        for record, value in zip(records, column, strict=True):
            values[record.qid] = value
            answered = answered or not (value is None or record.failed)
        mean = mean_of(values, get_metric(name).score_range, clusters)
        if mean and (answered or all_failed):
            scored[name] = mean.to_dict()
    return scored


@dataclass(frozen=True)
class Mean:
    """Mean of a metric over the questions that have a score.

    Attributes:
        n: Number of questions with a score.
        mean: Their mean, in score units.
        interval: 95 % interval. None if there are too few questions.
        clusters: Number of clusters of these questions. Equal to `n` if none are linked.
        largest: Number of questions in the largest cluster.
    """

    n: int
    mean: float
    interval: Interval | None
    clusters: int
    largest: int

    def to_dict(self) -> dict[str, Any]:
        """Return the mean, JSON-ready, with the interval as a list if there is one."""
        row: dict[str, Any] = {"mean": self.mean, "n": self.n}
        if self.interval:
            row["interval"] = [self.interval.low, self.interval.high]
        return row


def mean_of(
    scores: Mapping[str, float | None],
    bounds: Bounds,
    clusters: Mapping[str, Hashable] = MappingProxyType({}),
) -> Mean | None:
    """Compute the mean of scores with its interval.

    This is the only function that combines scores, bounds and clusters.

    Args:
        scores: Score of each question by id. None marks a question without a score.
        bounds: Least and greatest score. None if the metric has no bounds.
        clusters: Cluster of each question by id. A question that is missing is its own cluster.

    Returns:
        The mean. None if no question has a score.
    """
    values = []
    units = []
    for qid, score in sorted(scores.items()):
        if score is not None:
            values.append(score)
            units.append(clusters.get(qid, qid))
    if not values:
        return None
    sizes = Counter(units)
    return Mean(
        n=len(values),
        mean=sum(values) / len(values),
        interval=mean_interval(values, bounds, units),
        clusters=len(sizes),
        largest=max(sizes.values()),
    )


def _counts(labels: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in labels if name).items()))
