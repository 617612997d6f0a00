"""Summaries: everything a table shows of a run, computed from its records alone, one at a time."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ragbench.experiments.runs.failure_policies import failed, treatments
from ragbench.experiments.runs.summary_model import (
    PolicyScores,
    Progress,
    SignatureUse,
    Spent,
    Summary,
)
from ragbench.experiments.store import StoredRecords
from ragbench.metrics import (
    Interval,
    cluster_of,
    get_metric,
    mean_interval,
    usable_clusters,
)
from ragbench.record import Record, Sum

SUMMARY = "summary.json"
#: Metrics that every run shows; all others are computed on request.
HEADLINE = ("em", "f1")


def score_record(record: Record) -> dict[str, float | None]:
    """The headline scores of one record, in [0, 1]; a failed record has the worst."""
    return {name: get_metric(name).score(record) for name in HEADLINE}


def error_of(record: Record) -> str | None:
    """Boundary and class of the error of a failed record, such as `provider/LMServerError`."""
    return record.failure.name if record.failure else None


def stop_reason(record: Record) -> str | None:
    """The reason why the question ended."""
    return record.stop_reason


#: What every table shows of a record, computed while the records are read once.
_SHOWN = (*(get_metric(name).score for name in HEADLINE), failed, error_of, stop_reason, cluster_of)


def summarize(
    records: StoredRecords, questions: int | None = None, *, whole: bool = False
) -> Summary:
    """The summary of `records`, or with `whole` of a run of so many `questions`.

    Only a whole run has what replaced and cut-off records were billed, and the failure policies.
    """
    records.compute(_SHOWN)
    sums = _Sums()
    for record in chain(records.replaced(), records.cut_off()) if whole else ():
        sums.add_replaced(record)
    for qid in sorted(records):
        sums.add(records[qid])
    policies = treatments(records) if whole else {}
    errors = list(filter(None, _sorted(records, error_of)))
    return Summary(
        n=len(records),
        scores=_scores(records),
        failures=Counter(name.partition("/")[0] for name in errors),
        errors=dict(sorted(Counter(errors).items())),
        treatments={
            name: PolicyScores(len(some), sum(some.column(failed).values()), _scores(some))
            for name, some in policies.items()
        },
        stop_reasons=Counter(filter(None, _sorted(records, stop_reason))),
        counts=dict(sorted(sums.counts.items())),
        billed=Spent.of(sums.billed.totals()),
        as_if=Spent.of(sums.as_if.totals()),
        by_signature={
            name: SignatureUse(row["calls"], row["tokens"])
            for name, row in sorted(sums.by_signature.items())
        },
        critical_path_calls=sums.path_calls,
        retrievals=sums.searches,
        searches_from_memory=sums.searches_from_memory,
        latency_s=_quantiles(sums.latencies),
        progress=Progress.of(records, questions) if whole else None,
    )


def headline_intervals(records: StoredRecords) -> dict[str, Interval]:
    """The 95 % interval of each headline mean, by clusters where the records name them."""
    clusters = usable_clusters(list(records.column(cluster_of).values()))
    intervals = {}
    for name in HEADLINE:
        metric = get_metric(name)
        scores = [score or 0.0 for score in records.column(metric.score).values()]
        interval = mean_interval(scores, metric.score_range, clusters)
        if interval:
            intervals[name] = interval
    return intervals


class _Sums:
    """Sums that grow record by record."""

    def __init__(self) -> None:
        self.billed, self.as_if = Sum(billed=True), Sum()
        self.counts: Counter[str] = Counter()
        self.by_signature: dict[str, Counter[str]] = defaultdict(Counter)
        self.path_calls = self.searches = self.searches_from_memory = 0
        self.latencies = array("d")

    def add_replaced(self, record: Record) -> None:
        """Count what a record took that is not among those that count."""
        for call in record.ledger.calls:
            self.billed.add(call)

    def add(self, record: Record) -> None:
        """Count a record."""
        self.add_replaced(record)
        for call in record.ledger.calls:
            self.as_if.add(call)
            row = self.by_signature[call.signature or call.kind]
            row["calls"] += 1
            row["tokens"] += call.prompt_tokens + call.completion_tokens
        self.counts.update(record.counts)
        self.path_calls += record.ledger.path.calls
        self.searches += len(record.searches)
        self.searches_from_memory += sum(search.cached for search in record.searches)
        self.latencies.append(record.latency_s)


def _sorted(records: StoredRecords, wanted: Any) -> list[Any]:
    """A column, in the order of the questions' ids."""
    column = records.column(wanted)
    return [column[qid] for qid in sorted(column)]


def _scores(records: StoredRecords) -> dict[str, float]:
    if not records:
        return {}
    columns = {name: _sorted(records, get_metric(name).score) for name in HEADLINE}
    means = {name: np.array(column, dtype=float).mean() for name, column in columns.items()}
    return {name: round(float(mean), 6) for name, mean in means.items()}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return {
        "mean": round(float(np.mean(values)), 3),
        "p50": round(float(p50), 3),
        "p95": round(float(p95), 3),
    }
