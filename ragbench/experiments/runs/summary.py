"""A run on disk, opened without DSPy, data or models: its progress and its summary.

The summary has everything that a table shows of a run. It is computed from the records, each of
which is parsed once.
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
HEADLINE_SCORES = {name: get_metric(name).score for name in HEADLINE}
#: Metrics shown next to the scores: every gold passage was in the LM's context, and the searches
#: retrieved every gold passage.
GOLD_IN_CONTEXT = "gold_in_context"
GOLD_RETRIEVED = "all_recall"

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
    #: Paid requests to servers, including those of replaced and cut-off records.
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
        """Return the summary as JSON-ready fields."""
        return asdict(self)


#: Events of a question that shows nothing of how its program searches: its first search can give
#: every passage there is, or its index has no summary, edge or community.
DEGENERATE = ("exhaustive_retrieval", "trivial_index")


#: Event of a question whose program was told the gold passages.
READS_GOLD = "reads_gold"


def is_upper_bound(summary: Summary) -> bool:
    """Return True if the program received the gold passages, so it is only a bound."""
    return summary.counts.get(READS_GOLD, 0) > 0


def retrieval_is_selective(summary: Summary) -> bool:
    """Return True if most questions show how the program chooses its passages."""
    return all(2 * summary.counts.get(event, 0) <= summary.n for event in DEGENERATE)


#: Columns of each record that a summary and a table of runs need.
COLUMNS: tuple[Column, ...] = (
    *(get_metric(name).score for name in (*HEADLINE, GOLD_IN_CONTEXT, GOLD_RETRIEVED)),
    failed, failure_of, stop_reason, varies_with, spending,
)  # fmt: skip


def summarize(records: StoredRecords, *, whole: bool = False) -> Summary:
    """Compute the summary of `records`.

    Args:
        records: Records of a run, or some of them.
        whole: True adds the bills of replaced and cut-off records.
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
    """Return the mean, median and 95th percentile, or {} without questions."""
    if not seconds:
        return {}
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    values = {"mean": np.mean(seconds), "p50": p50, "p95": p95}
    return {name: round(float(value), 3) for name, value in values.items()}


def headline_intervals(records: StoredRecords) -> dict[str, Interval]:
    """Compute the 95 % interval of each headline mean, by clusters of questions."""
    records.compute(COLUMNS)
    intervals = {}
    for name in HEADLINE:
        metric = get_metric(name)
        estimate = mean_of_run(records, records.column(metric.score), metric.score_range)
        if estimate and estimate.interval:
            intervals[name] = estimate.interval
    return intervals


def _sorted(records: StoredRecords, amount: Callable[[Record], T]) -> list[T]:
    """Return a column in the order of the question ids, so that sums are reproducible."""
    column = records.column(amount)
    return [column[qid] for qid in sorted(column)]


def _counted(values: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in values if name).items()))


@dataclass(frozen=True)
class Progress:
    """Number of questions of a run by outcome. `questions` is None if unknown."""

    answered: int
    failed: int
    cut_off: int
    questions: int | None = None

    @property
    def not_asked(self) -> int:
        """Number of questions that were not started."""
        return max(0, (self.questions or 0) - self.answered - self.failed - self.cut_off)

    @property
    def complete(self) -> bool:
        """True if every question was answered or failed."""
        return not self.cut_off and not self.not_asked

    def words(self) -> str:
        """Describe the progress: "37 of 100 answered, 1 failed, 2 cut off, 60 not asked"."""
        outcomes = {"failed": self.failed, "cut off": self.cut_off, "not asked": self.not_asked}
        counted = [f"{self.answered} of {self.questions} answered"]
        for outcome, n in outcomes.items():
            if n:
                counted.append(f"{n} {outcome}")
        return ", ".join(counted)


class Evaluation:
    """A run on disk, or some of its questions. Totals are computed on demand.

    Attributes:
        run: The run.
        records: Its records, or some of them.
        card: Its card. If a limit prevented the start, the card of the planned run.
        stopped_by: Limit that stopped this command, if any.
        folder: Its folder.
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

    @cached_property
    def summary(self) -> Summary:
        """Scores, errors, totals."""
        return summarize(self.records, whole=True)

    @cached_property
    def progress(self) -> Progress:
        """Number of questions by outcome."""
        answered = len(self.records.finished)
        cut_off = len(self.records.cut_off_questions)
        failures = len(self.records) - answered
        return Progress(answered, failures, cut_off, self.card.questions)

    @cached_property
    def lost(self) -> Totals:
        """Bill of the questions without a record, because the process was killed."""
        return billed(self.run.lost_calls())

    @cached_property
    def prepared(self) -> Totals:
        """Bill of the index and of everything else that all questions share."""
        calls = self.run.preparation_calls()
        # An embedder of this machine is free.
        return billed(call for call in calls if call.kind in LM_KINDS or call.cost_usd != 0)

    def stored(self) -> dict[str, Any]:
        """Return the content of `summary.json`: summary, progress and 95 % intervals."""
        intervals = {}
        for name, interval in headline_intervals(self.records).items():
            intervals[name] = [round(interval.low, 6), round(interval.high, 6)]
        progress = {**asdict(self.progress), "not_asked": self.progress.not_asked}
        return {**self.summary.to_dict(), "progress": progress, "intervals": intervals}

    @property
    def all_failed(self) -> bool:
        """True if every question failed."""
        return bool(self.records) and self.summary.failed == len(self.records)

    @property
    def unreadable(self) -> int:
        """Number of questions for which no reply of the LM could be parsed."""
        return sum(why == "parse_fallback" for why in self.records.column(stop_reason).values())


def reopen(folder: Path) -> Evaluation:
    """Open the run in `folder`. Writes nothing.

    Raises:
        RunError: It is not a run folder.
    """
    return Evaluation(RunFolder(folder))


def reopen_arm(folder: Path) -> list[Evaluation]:
    """Open the runs in `folder`: its repeats `r1`, `r2`, ... in order, or the single run.

    Raises:
        RunError: It has neither.
    """
    return list(map(reopen, repeats_in(folder) or [folder]))


def folder_of_repeats(folder: Path) -> Path:
    """Return the folder with all repeats of a run, or `folder` for a single run."""
    if folder.name.startswith("r") and folder.name[1:].isdigit():
        return folder.parent
    return folder


def or_unknown(value: float | None, form: str = ".4f") -> str:
    """Return a formatted number, or "unknown".

    Args:
        value: The number, or None.
        form: Format specification, by default that of dollars.
    """
    return "unknown" if value is None else format(value, form)


def stop_lines(stopped_by: str | None, progress: Progress) -> list[str]:
    """Return the lines to print below the table of an incomplete run.

    Args:
        stopped_by: Limit that stopped the run, or None.
        progress: Progress of the run.
    """
    if progress.complete:
        return []
    if stopped_by:
        state = f"stopped by {stopped_by}"
    else:
        state = "not finished"
    return [f"{state}: {progress.words()}; the scores are of those that were answered or failed"]


def members(records: StoredRecords) -> list[tuple[str, str, StoredRecords]]:
    """Return breakdown, group and records of every group that has any."""
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
