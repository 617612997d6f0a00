"""What a run is worth: means over all its records, how they break down, and what failures change.

A pure function of records, JSON-ready. A mean is over every record that the metric can score;
failed records have the metric's worst score. A metric that no answered record has (nothing was
cited, no price is known) is left out, so that failures alone never make a score.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.metrics.base import Metric, get_metric
from ragbench.metrics.efficiency import efficiency, quantiles, spend_summary
from ragbench.metrics.errors import cause_of
from ragbench.metrics.retrieval import gold_by_search
from ragbench.metrics.stats.estimates import Interval, mean_interval
from ragbench.metrics.support import evidence_kind, support_kind
from ragbench.metrics.text import answer_kind
from ragbench.record import Record

#: What a summary shows unless told otherwise.
DEFAULT_METRICS = (
    *("em", "f1", "contain", "answer_length", "sp_f1", "joint_f1", "evidence_f1", "support_f1"),
    *("recall", "all_recall", "recall@5", "mrr", "ndcg", "search_recall"),
    *("redundancy", "hops_to_gold", "retrieved_tokens"),
)
#: What every breakdown shows.
BREAKDOWN_METRICS = ("em", "f1")

#: A record -> the group it belongs to, or None for none.
Grouping = Callable[[Record], Hashable | None]

GROUPINGS: Mapping[str, Grouping] = {
    "qtype": lambda record: record.qtype or None,
    "hops": lambda record: record.hops,
    "answer_kind": lambda record: answer_kind(record.answers[0]),
}


@dataclass(frozen=True)
class Score:
    """The mean of a metric over `n` scored records, with its 95 % interval (plus-two t).

    Where some of them failed: `failures_as_worst` is the mean itself, `failures_excluded` that of
    the answered ones, which flatters a program that fails on hard questions; a reader who accepts
    neither takes the score as not available.
    """

    mean: float
    n: int
    n_failed: int = 0
    failures_excluded: float | None = None
    interval: Interval | None = None
    excluded_interval: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the three treatments stand there only where something failed."""
        shown: dict[str, Any] = {"mean": self.mean, "n": self.n}
        if self.interval:
            shown["interval"] = [self.interval.low, self.interval.high]
        if self.n_failed:
            shown["failures"] = {
                "n": self.n_failed,
                "as_worst": self.mean,
                "excluded": self.failures_excluded,
                "not_available": None,
            }
            if interval := self.excluded_interval:
                shown["failures"]["excluded_interval"] = [interval.low, interval.high]
        return shown


@dataclass(frozen=True)
class Summary:
    """The summary of a run; see `to_dict`."""

    n: int
    n_failed: int
    failures: Mapping[str, int]
    scores: Mapping[str, Score]
    breakdowns: Mapping[str, Mapping[str, Mapping[str, Any]]]
    support_kinds: Mapping[str, int]
    evidence_kinds: Mapping[str, int]
    causes: Mapping[str, int]
    efficiency: Mapping[str, float | None]
    spend: Mapping[str, Any]
    gold_by_search: Mapping[str, Mapping[str, int]]
    latency_s: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        scores = {name: score.to_dict() for name, score in self.scores.items()}
        return {**vars(self), "scores": scores}


def summarize(
    records: Sequence[Record],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    groupings: Mapping[str, Grouping] = GROUPINGS,
    breakdown_metrics: Sequence[str] = BREAKDOWN_METRICS,
    columns: Mapping[str, Sequence[float | None]] | None = None,
) -> Summary:
    """The summary of `records`, in whatever order they come.

    `groupings` are the breakdowns; add one to break down by what another run knows, such as whether
    a question is solved without retrieval. `columns`, where they are known already, are what
    `score_columns` gives for `records` as they stand, which must then be ordered by qid.
    UnknownNameError for a metric that does not exist.
    """
    records = sorted(records, key=lambda r: r.qid)
    columns = score_columns(records, metrics) if columns is None else columns
    failures = [r.failure.name if r.failure else "program/no answer" for r in records if r.failed]
    return Summary(
        n=len(records),
        n_failed=len(failures),
        failures=_counts(failures),
        scores=_means(records, {name: columns[name] for name in metrics}),
        breakdowns={
            name: _breakdown(records, group, breakdown_metrics) for name, group in groupings.items()
        },
        support_kinds=_counts(map(support_kind, records)),
        evidence_kinds=_counts(map(evidence_kind, records)),
        causes=_counts(cause.name for cause in map(cause_of, records) if cause),
        efficiency=efficiency(records),
        spend=spend_summary(records),
        gold_by_search=gold_by_search(records),
        latency_s=quantiles([record.latency_s for record in records]),
    )


def score_columns(
    records: Sequence[Record], metrics: Sequence[str]
) -> dict[str, list[float | None]]:
    """For each metric its score of every record, in the order of `records`.

    UnknownNameError for a metric that does not exist.
    """
    chosen = [get_metric(name) for name in metrics]
    # All metrics of one record, then the next: what they share is worked out once.
    rows = [[metric.score(record) for metric in chosen] for record in records]
    return {metric.name: [row[i] for row in rows] for i, metric in enumerate(chosen)}


def _means(
    records: Sequence[Record], columns: Mapping[str, Sequence[float | None]]
) -> dict[str, Score]:
    """The mean of each column, by metric, where it has one."""
    scores = {name: _mean(get_metric(name), records, column) for name, column in columns.items()}
    return {name: score for name, score in scores.items() if score}


def _mean(
    metric: Metric, records: Sequence[Record], column: Sequence[float | None]
) -> Score | None:
    pairs = [(r, value) for r, value in zip(records, column, strict=True) if value is not None]
    kept = [(record, value) for record, value in pairs if not record.failed]
    if not pairs or (not kept and not all(record.failed for record in records)):
        return None
    return Score(
        mean=sum(value for _, value in pairs) / len(pairs),
        n=len(pairs),
        n_failed=len(pairs) - len(kept),
        failures_excluded=sum(value for _, value in kept) / len(kept) if kept else None,
        interval=_interval(metric, pairs),
        excluded_interval=_interval(metric, kept) if len(kept) < len(pairs) else None,
    )


def _interval(metric: Metric, scored: Sequence[tuple[Record, float]]) -> Interval | None:
    clusters = usable_clusters([cluster_of(record) for record, _ in scored])
    return mean_interval([value for _, value in scored], metric.score_range, clusters)


def _breakdown(
    records: Sequence[Record], group: Grouping, metrics: Sequence[str]
) -> dict[str, dict[str, Any]]:
    members: dict[Hashable, list[Record]] = defaultdict(list)
    for record in records:
        if (key := group(record)) is not None:
            members[key].append(record)
    rows = {}
    for key, some in sorted(members.items(), key=lambda item: str(item[0])):
        scores = _means(some, score_columns(some, metrics))
        shown = {name: score.to_dict() for name, score in scores.items()}
        rows[str(key)] = {
            "n": len(some),
            "n_failed": sum(record.failed for record in some),
            **{name: score["mean"] for name, score in shown.items()},
            "intervals": {n: row["interval"] for n, row in shown.items() if "interval" in row},
        }
    return rows


def cluster_of(record: Record) -> str:
    """The cluster that the data set names for the question; empty where it names none."""
    return str(record.extra.get("cluster") or "")


def usable_clusters(names: Sequence[str]) -> list[str] | None:
    """The names of clusters; None where not all are known.

    Where all are the same there is one cluster, of which no interval can be given.
    """
    return None if "" in names else list(names)


def _counts(names: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in names if name).items()))
