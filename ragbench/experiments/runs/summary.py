"""A run as it is on disk, opened without DSPy, data or models: how far it came, and its summary.

The summary is all that a table shows of a run, computed from its records;
each of them is parsed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ragbench.experiments.runs.clusters import mean_of_run
from ragbench.experiments.store import (
    Column,
    RunCard,
    RunFolder,
    StoredRecords,
    failed,
    failure_of,
    repeats_in,
    spending,
    stop_reason,
    varies_with,
)
from ragbench.metrics import GROUPINGS, Interval, get_metric
from ragbench.record import LM_KINDS, Record, Totals, add_up, billed

T = TypeVar("T")

SUMMARY = "summary.json"
#: Metrics that every run shows; all others are computed on request.
HEADLINE = ("em", "f1")
#: Stand beside the scores: whether the model was shown every gold passage, and whether the
#: searches found them all.
EVIDENCE = "evidence"
FOUND = "all_recall"

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


#: Events of a question that shows nothing of how its program searches: its first search can give
#: every passage there is, or its index has no summary, edge or community.
SHOWS_NOTHING = ("reads_all", "bare_index")


#: Event of a question whose program was told the gold passages.
READS_GOLD = "reads_gold"


def is_upper_bound(summary: Summary) -> bool:
    """Whether the program was told the gold passages, as none that can be built is."""
    return summary.counts.get(READS_GOLD, 0) > 0


def shows_method(summary: Summary) -> bool:
    """Whether most questions show how the program chooses what it reads."""
    return all(2 * summary.counts.get(event, 0) <= summary.n for event in SHOWS_NOTHING)


#: What a summary and a table of runs need of each record.
COLUMNS: tuple[Column, ...] = (
    *(get_metric(name).score for name in (*HEADLINE, EVIDENCE, FOUND)),
    failed, failure_of, stop_reason, varies_with, spending,
)  # fmt: skip


def summarize(records: StoredRecords, *, whole: bool = False) -> Summary:
    """The summary of `records`.

    Only that of a `whole` run has what replaced and cut-off records were billed.
    """
    records.compute(COLUMNS)
    taken = _sorted(records, spending)
    paid = [spent.billed for spent in taken]
    if whole:
        paid += [spent.billed for spent in records.column_beside(spending)]
    counts: Counter[str] = Counter()
    for spent in taken:
        counts.update(spent.counts)
    failures = filter(None, _sorted(records, failure_of))
    scores = {}
    for name in HEADLINE if records else ():
        values = np.array(_sorted(records, get_metric(name).score), float)
        scores[name] = round(float(values.mean()), 6)
    return Summary(
        n=len(records),
        scores=scores,
        errors=_counted(failure.name for failure in failures),
        stop_reasons=_counted(_sorted(records, stop_reason)),
        counts=dict(sorted(counts.items())),
        billed=add_up(paid),
        as_if=add_up(spent.as_if for spent in taken),
        critical_path_calls=sum(spent.critical_path_calls for spent in taken),
        retrievals=sum(spent.searches for spent in taken),
        latency_s=_latency([spent.latency_s for spent in taken]),
    )


def _latency(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile; empty where there is no question."""
    if not seconds:
        return {}
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    values = {"mean": np.mean(seconds), "p50": p50, "p95": p95}
    return {name: round(float(value), 3) for name, value in values.items()}


def headline_intervals(records: StoredRecords) -> dict[str, Interval]:
    """The 95 % interval of each headline mean, by clusters of questions that vary together."""
    records.compute(COLUMNS)
    intervals = {}
    for name in HEADLINE:
        metric = get_metric(name)
        found = mean_of_run(records, records.column(metric.score), metric.score_range)
        if found and found.interval:
            intervals[name] = found.interval
    return intervals


def _sorted(records: StoredRecords, amount: Callable[[Record], T]) -> list[T]:
    """A column, in the order of the questions' ids, so that sums are the same in any order."""
    column = records.column(amount)
    return [column[qid] for qid in sorted(column)]


def _counted(values: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in values if name).items()))


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
        counted = [f"{self.answered} of {self.questions} answered"]
        for outcome, n in outcomes.items():
            if n:
                counted.append(f"{n} {outcome}")
        return ", ".join(counted)


class Evaluation:
    """A run as it is on disk, or some of its questions; totals are computed when asked for.

    Attributes:
        run: The run.
        records: Its records, or some of them.
        card: Its card; that of the run to be, where a limit let nothing begin.
        stopped_by: The limit of spending that ended it just now, where one did.
        folder: Where it is.
    """

    def __init__(
        self,
        run: RunFolder,
        records: StoredRecords | None = None,
        *,
        card: RunCard | None = None,
        stopped_by: str | None = None,
    ) -> None:
        self.run = run
        self.records = run.records if records is None else records
        self.card = card or run.card
        self.stopped_by = stopped_by
        self.folder = run.path

    def read(self, columns: Iterable[Column]) -> None:
        """Parse every record once, for the summary and for these `columns`."""
        self.records.compute([*COLUMNS, *columns])

    @cached_property
    def summary(self) -> Summary:
        """Scores, errors, totals."""
        return summarize(self.records, whole=True)

    @cached_property
    def progress(self) -> Progress:
        """How far the run came."""
        answered = len(self.records.finished)
        cut_off = len(self.records.cut_off_questions)
        failures = len(self.records) - answered
        return Progress(answered, failures, cut_off, self.card.questions)

    @cached_property
    def lost(self) -> Totals:
        """What questions were billed that a kill kept from leaving a record."""
        return billed(self.run.lost_calls())

    @cached_property
    def prepared(self) -> Totals:
        """What was billed for the index, and for what else all questions share."""
        calls = self.run.preparation_calls()
        # An embedder of this machine is free.
        return billed(call for call in calls if call.kind in LM_KINDS or call.cost_usd != 0)

    def stored(self) -> dict[str, Any]:
        """What `summary.json` holds: summary, progress, and 95 % intervals of headline means."""
        intervals = {}
        for name, interval in headline_intervals(self.records).items():
            intervals[name] = [round(interval.low, 6), round(interval.high, 6)]
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
    """The run in `folder`; writes nothing.

    Raises:
        RunError: it is not a run folder.
    """
    return Evaluation(RunFolder(folder))


def reopen_arm(folder: Path) -> list[Evaluation]:
    """The runs in `folder`: its repeats `r1`, `r2`, ... in their order, or the one that it is.

    Raises:
        RunError: it holds neither.
    """
    return list(map(reopen, repeats_in(folder) or [folder]))


def folder_of_repeats(folder: Path) -> Path:
    """The folder that holds all repeats of the run in `folder`, or `folder` where it is not one."""
    if folder.name.startswith("r") and folder.name[1:].isdigit():
        return folder.parent
    return folder


def stop_lines(stopped_by: str | None, progress: Progress) -> list[str]:
    """The lines to print with the table of a run that is not complete; none if it is."""
    if progress.complete:
        return []
    if stopped_by:
        state = f"stopped by {stopped_by}"
    else:
        state = "not finished"
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
        label = GROUP_NAMES.get(name, name)
        rows += [(label, key, records.only(groups[key])) for key in sorted(groups)]
    return rows
