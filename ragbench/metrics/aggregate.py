"""What a run is worth: means over all its records.

A pure function of records, JSON-ready. A mean is over every record that the metric can score;
failed records have the metric's worst score. A metric that no answered record has (nothing was
cited, no price is known) is left out, so that failures alone never make a score.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from ragbench.metrics.base import get_metric
from ragbench.metrics.stats.estimates import mean_interval
from ragbench.metrics.support import evidence_kind, support_kind
from ragbench.metrics.text import answer_kind
from ragbench.record import Record

#: Metrics of a summary by default.
DEFAULT_METRICS = (
    *("em", "f1", "contain", "answer_length", "sp_f1", "joint_f1", "evidence_f1", "support_f1"),
    *("recall", "all_recall", "recall@5", "mrr", "ndcg", "search_recall"),
    *("hops_to_gold", "retrieved_tokens"),
)
#: Name -> the group that a record belongs to, or None for none.
GROUPINGS: Mapping[str, Callable[[Record], Hashable | None]] = {
    "qtype": lambda record: record.qtype or None,
    "hops": lambda record: record.hops,
    "answer_kind": lambda record: answer_kind(record.answers[0]),
}
#: By metric its score of every record, in the order of the records.
Columns = Mapping[str, Sequence[float | None]]


def summarize(records: Sequence[Record], columns: Columns) -> dict[str, Any]:
    """The summary of `records`, ordered by qid, JSON-ready; `columns` are of `score_columns`."""
    failures = []
    for record in records:
        if record.failed:
            failures.append(record.failure.name if record.failure else "program/no answer")
    return {
        "n": len(records),
        "n_failed": len(failures),
        "failures": _counts(failures),
        "scores": _means(records, columns),
        "support_kinds": _counts(map(support_kind, records)),
        "evidence_kinds": _counts(map(evidence_kind, records)),
    }


def score_columns(
    records: Sequence[Record], metrics: Sequence[str]
) -> dict[str, list[float | None]]:
    """For each metric its score of every record, in the order of `records`.

    UnknownNameError for a metric that does not exist.
    """
    chosen = list(map(get_metric, dict.fromkeys(metrics)))
    columns: dict[str, list[float | None]] = {metric.name: [] for metric in chosen}
    # All metrics of one record, then the next: what they share is worked out once.
    for record in records:
        for metric in chosen:
            columns[metric.name].append(metric.score(record))
    return columns


def _means(records: Sequence[Record], columns: Columns) -> dict[str, dict[str, Any]]:
    scored: dict[str, dict[str, Any]] = {}
    for name, column in columns.items():
        values = []
        clusters = []
        answered = False
        for record, value in zip(records, column, strict=True):
            if value is not None:
                values.append(value)
                clusters.append(cluster_of(record))
                answered = answered or not record.failed
        if not values or not (answered or all(record.failed for record in records)):
            continue
        scored[name] = {"mean": sum(values) / len(values), "n": len(values)}
        ends = mean_interval(values, get_metric(name).score_range, usable_clusters(clusters))
        if ends:
            scored[name]["interval"] = [ends.low, ends.high]
    return scored


def cluster_of(record: Record) -> str:
    """The cluster that the data set names for the question; empty where it names none."""
    return str(record.extra.get("cluster") or "")


def usable_clusters(clusters: Sequence[str]) -> list[str] | None:
    """The names of clusters; None where not all are known.

    Where all are the same there is one cluster, of which no interval can be given.
    """
    if "" in clusters:
        return None
    return list(clusters)


def _counts(labels: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in labels if name).items()))
