"""The summary of a run: all that a table shows of it, computed from its records, one at a time."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, TypeAdapter

from ragbench.calls import Totals
from ragbench.experiments.store import StoredRecords
from ragbench.metrics import Interval, cluster_of, get_metric, mean_interval, usable_clusters
from ragbench.record import Record, Sum

T = TypeVar("T")

SUMMARY = "summary.json"
#: Metrics that every run shows; all others are computed on request.
HEADLINE = ("em", "f1")

# Three ways to count questions that failed, over the same questions:
#
#     scored 0    every question by its first record; a failed one scores the worst
#     left out    the questions whose first record did not fail
#     retried     every question by its last record; one that fails still scores the worst
#
# *Retried* is the run as it stands, and the headline of every table. It flatters where failures are
# not the server's alone: a question that its program fails at random is asked until it answers.
# *Left out* flatters a program that fails on hard questions. *Scored 0* blames the program for the
# server. Where no question ever failed, all three are the same and none is shown.
SCORED_0, LEFT_OUT, RETRIED = "scored 0", "left out", "retried"

#: Marks a field that is left out of the file where it is empty, 0 or None.
_NOT_EMPTY = Field(exclude_if=lambda value: not value)


@dataclass(frozen=True, slots=True)
class PolicyScores:
    """The headline scores where failed questions are counted by one of the policies."""

    n: int
    failed: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a run, or of some of its questions."""

    n: int
    #: Means of the headline metrics over all questions, failed ones as the worst.
    scores: Mapping[str, float]
    #: Failed questions by boundary, and by boundary and class of error.
    failures: Mapping[str, int]
    errors: Mapping[str, int]
    #: By failure policy; empty where no question ever failed.
    treatments: Annotated[Mapping[str, PolicyScores], _NOT_EMPTY] = field(default_factory=dict)
    stop_reasons: Mapping[str, int]
    counts: Mapping[str, int]
    #: What was sent to servers and paid, for records that were replaced or cut off too.
    billed: Totals
    #: As if nothing had been cached or failed, at list price.
    as_if: Totals
    #: Calls by a signature and their tokens.
    by_signature: Mapping[str, Mapping[str, int]]
    critical_path_calls: int
    retrievals: int
    searches_from_memory: int
    #: Mean, p50 and p95 of a question, with what the cache saved added back; empty without one.
    latency_s: Mapping[str, float]

    @property
    def failed(self) -> int:
        """Questions that failed."""
        return sum(self.failures.values())

    def to_dict(self) -> dict[str, Any]:
        """The summary, JSON-ready."""
        dumped: dict[str, Any] = _summaries().dump_python(self)
        return dumped


@cache
def _summaries() -> TypeAdapter[Summary]:  # made when used, for a table needs none
    return TypeAdapter(Summary)


def failed(record: Record) -> bool:
    """Whether the question got no answer."""
    return record.failed


def error_of(record: Record) -> str | None:
    """Boundary and class of the error of a failed record, such as `provider/LMServerError`."""
    return record.failure.name if record.failure else None


def stop_reason(record: Record) -> str | None:
    """The reason why the question ended."""
    return record.stop_reason


#: What every table shows of a record, computed while the records are read once.
_SHOWN = (*(get_metric(name).score for name in HEADLINE), failed, error_of, stop_reason, cluster_of)


def summarize(records: StoredRecords, *, whole: bool = False) -> Summary:
    """The summary of `records`.

    Only that of a `whole` run has what replaced and cut-off records were billed, and the failure
    policies.
    """
    records.compute(_SHOWN)
    billed, as_if = Sum(billed=True), Sum()
    counts: Counter[str] = Counter()
    by_signature: dict[str, Counter[str]] = defaultdict(Counter)
    path_calls = searches = from_memory = 0
    latencies = array("d")
    for record in chain(records.replaced(), records.cut_off()) if whole else ():
        for call in record.ledger.calls:
            billed.add(call)
    for qid in sorted(records):
        record = records[qid]
        for call in record.ledger.calls:
            billed.add(call)
            as_if.add(call)
            tokens = call.prompt_tokens + call.completion_tokens
            by_signature[call.signature or call.kind].update(calls=1, tokens=tokens)
        counts.update(record.counts)
        path_calls += record.ledger.path.calls
        searches += len(record.searches)
        from_memory += sum(search.cached for search in record.searches)
        latencies.append(record.latency_s)
    errors = list(filter(None, _sorted(records, error_of)))
    latency = (np.mean(latencies), *np.quantile(latencies, [0.5, 0.95])) if latencies else ()
    return Summary(
        n=len(records),
        scores=_scores(records),
        failures=Counter(name.partition("/")[0] for name in errors),
        errors=dict(sorted(Counter(errors).items())),
        treatments={
            name: PolicyScores(len(some), sum(some.column(failed).values()), _scores(some))
            for name, some in (treatments(records) if whole else {}).items()
        },
        stop_reasons=Counter(filter(None, _sorted(records, stop_reason))),
        counts=dict(sorted(counts.items())),
        billed=billed.totals(),
        as_if=as_if.totals(),
        by_signature=dict(sorted(by_signature.items())),
        critical_path_calls=path_calls,
        retrievals=searches,
        searches_from_memory=from_memory,
        latency_s={
            name: round(float(value), 3)
            for name, value in zip(("mean", "p50", "p95"), latency, strict=False)
        },
    )


def treatments(records: StoredRecords) -> dict[str, StoredRecords]:
    """The records that each treatment counts, by question; empty where no question ever failed."""
    first = records.first
    at_first = first.column(failed)
    if not any((*at_first.values(), *records.column(failed).values())):
        return {}
    answered = first.only(qid for qid, fails in at_first.items() if not fails)
    return {SCORED_0: first, LEFT_OUT: answered, RETRIED: records}


def headline_intervals(records: StoredRecords) -> dict[str, Interval]:
    """The 95 % interval of each headline mean, by clusters where the records name them."""
    clusters = usable_clusters(list(records.column(cluster_of).values()))
    intervals = {}
    for name in HEADLINE:
        metric = get_metric(name)
        scores = [score or 0.0 for score in records.column(metric.score).values()]
        if interval := mean_interval(scores, metric.score_range, clusters):
            intervals[name] = interval
    return intervals


def _sorted(records: StoredRecords, wanted: Callable[[Record], T]) -> list[T]:
    """A column, in the order of the questions' ids, so that sums are the same in any order."""
    column = records.column(wanted)
    return [column[qid] for qid in sorted(column)]


def _scores(records: StoredRecords) -> dict[str, float]:
    columns = {name: _sorted(records, get_metric(name).score) for name in HEADLINE if records}
    means = {name: np.array(column, dtype=float).mean() for name, column in columns.items()}
    return {name: round(float(mean), 6) for name, mean in means.items()}
