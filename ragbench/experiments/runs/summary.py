"""A run as it is on disk, opened without DSPy, data or models: how far it came, and its summary.

The summary is all that a table shows of a run, computed from its records, one at a time.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ragbench.experiments.store import (
    RunCard,
    StoredRecords,
    lost_calls,
    preparation_calls,
    read_card,
    read_records,
)
from ragbench.metrics import (
    GROUPINGS,
    Interval,
    cluster_of,
    get_metric,
    mean_interval,
    usable_clusters,
)
from ragbench.record import LM_KINDS, Record, Sum, Totals, billed

T = TypeVar("T")

SUMMARY = "summary.json"
#: Metrics that every run shows; all others are computed on request.
HEADLINE = ("em", "f1")

#: Breakdown -> what its rows are, for people.
GROUP_NAMES = {"qtype": "question type", "hops": "hops", "answer_kind": "kind of answer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a run, or of some of its questions."""

    n: int
    #: Means of the headline metrics over all questions, failed ones as the worst.
    scores: Mapping[str, float]
    #: Failed questions by boundary and class of error.
    errors: Mapping[str, int]
    stop_reasons: Mapping[str, int]
    counts: Mapping[str, int]
    #: What was sent to servers and paid, for records that were replaced or cut off too.
    billed: Totals
    #: As if nothing had been cached or failed, at list price.
    as_if: Totals
    critical_path_calls: int
    retrievals: int
    #: Mean, p50 and p95 of a question, with what the cache saved added back; empty without one.
    latency_s: Mapping[str, float]

    @property
    def failed(self) -> int:
        """Questions that failed."""
        return sum(self.errors.values())

    def to_dict(self) -> dict[str, Any]:
        """The summary, JSON-ready."""
        return asdict(self)


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

    Only that of a `whole` run has what replaced and cut-off records were billed.
    """
    records.compute(_SHOWN)
    paid, as_if = Sum(billed=True), Sum()
    counts: Counter[str] = Counter()
    path_calls = searches = 0
    latencies = array("d")
    for record in chain(records.replaced(), records.cut_off()) if whole else ():
        for call in record.ledger.calls:
            paid.add(call)
    for qid in sorted(records):
        record = records[qid]
        for call in record.ledger.calls:
            paid.add(call)
            as_if.add(call)
        counts.update(record.counts)
        path_calls += record.ledger.path.calls
        searches += len(record.searches)
        latencies.append(record.latency_s)
    latency = (np.mean(latencies), *np.quantile(latencies, [0.5, 0.95])) if latencies else ()
    return Summary(
        n=len(records),
        scores={
            name: round(float(np.array(_sorted(records, get_metric(name).score), float).mean()), 6)
            for name in HEADLINE
            if records
        },
        errors=_counted(_sorted(records, error_of)),
        stop_reasons=_counted(_sorted(records, stop_reason)),
        counts=dict(sorted(counts.items())),
        billed=paid.totals(),
        as_if=as_if.totals(),
        critical_path_calls=path_calls,
        retrievals=searches,
        latency_s={
            name: round(float(value), 3)
            for name, value in zip(("mean", "p50", "p95"), latency, strict=False)
        },
    )


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


def _counted(names: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(filter(None, names)).items()))


@dataclass(frozen=True)
class Progress:
    """A run's questions by outcome; `questions` is None if the run does not say."""

    answered: int
    failed: int
    cut_off: int
    questions: int | None = None

    @property
    def not_asked(self) -> int:
        """Questions that were not begun."""
        return max(0, (self.questions or 0) - self.answered - self.failed - self.cut_off)

    @property
    def complete(self) -> bool:
        """Whether every question came to its end."""
        return not self.cut_off and not self.not_asked

    def words(self) -> str:
        """In words, such as "37 of 100 answered, 1 failed, 2 cut off, 60 not asked"."""
        outcomes = {"failed": self.failed, "cut off": self.cut_off, "not asked": self.not_asked}
        others = [f"{n} {outcome}" for outcome, n in outcomes.items() if n]
        return ", ".join([f"{self.answered} of {self.questions} answered", *others])


@dataclass(frozen=True)
class Evaluation:
    """A run as it is on disk: folder, config card, records by question id, summary."""

    folder: Path
    card: RunCard
    records: StoredRecords
    summary: Summary
    progress: Progress
    stopped_by: str  # the limit of spending that ended it just now, where one did
    #: What questions were billed that a kill kept from leaving a record.
    lost: Totals
    #: What was billed for the index, and for what else all questions share.
    prepared: Totals

    @classmethod
    def of(
        cls, folder: Path, card: RunCard, records: StoredRecords, stopped_by: str = ""
    ) -> Evaluation:
        """The run in `folder`, with these `records`."""
        answered, cut_off = len(records.finished), len(records.cut_off_questions)
        # An embedder of this machine is free.
        shared = (c for c in preparation_calls(folder) if c.kind in LM_KINDS or c.cost_usd != 0)
        return cls(
            folder=folder,
            card=card,
            records=records,
            summary=summarize(records, whole=True),
            progress=Progress(answered, len(records) - answered, cut_off, card.questions),
            stopped_by=stopped_by,
            lost=billed(lost_calls(folder)),
            prepared=billed(shared),
        )

    def stored(self) -> dict[str, Any]:
        """What `summary.json` holds: summary, progress, and 95 % intervals of headline means."""
        intervals = {
            name: [round(each.low, 6), round(each.high, 6)]
            for name, each in headline_intervals(self.records).items()
        }
        progress = {**asdict(self.progress), "not_asked": self.progress.not_asked}
        return {**self.summary.to_dict(), "progress": progress, "intervals": intervals}

    @property
    def all_failed(self) -> bool:
        """Whether not one of its questions was answered."""
        return bool(self.records) and self.summary.failed == len(self.records)

    @property
    def unreadable(self) -> int:
        """Questions that ended without one reply of the model that could be read."""
        return sum(why == "parse_fallback" for why in self.records.column(stop_reason).values())


def reopen(folder: Path) -> Evaluation:
    """The run in `folder`, its summary computed from its records; writes nothing.

    Raises:
        RunError: it is not a run folder.
    """
    return Evaluation.of(folder, read_card(folder), read_records(folder))


def stop_lines(stopped_by: str, progress: Progress) -> list[str]:
    """The lines to print with the table of a run that is not complete; none if it is."""
    if progress.complete:
        return []
    state = f"stopped by {stopped_by}" if stopped_by else "not finished"
    return [f"{state}: {progress.words()}; the scores are of those that were answered or failed"]


def members(records: StoredRecords) -> list[tuple[str, str, StoredRecords]]:
    """Breakdown (in words), group and its records, for every group that has any."""
    rows = []
    records.compute(GROUPINGS.values())
    for name, group in GROUPINGS.items():
        groups: dict[str, list[str]] = {}
        for qid, key in records.column(group).items():
            if key is not None:
                groups.setdefault(str(key), []).append(qid)
        shown = GROUP_NAMES.get(name, name)
        rows += [(shown, key, records.only(groups[key])) for key in sorted(groups)]
    return rows
