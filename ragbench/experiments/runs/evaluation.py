"""A run as it is on disk, opened without DSPy, data or models: how far it came, and its groups."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import RunError
from ragbench.experiments.runs.summary import Summary, headline_intervals, stop_reason, summarize
from ragbench.experiments.store import (
    RunCard,
    StoredRecords,
    lost_calls,
    preparation_calls,
    read_card,
    read_records,
)
from ragbench.metrics import GROUPINGS, Grouping, get_metric
from ragbench.record import LM_KINDS, Record, Totals, billed

#: Breakdown -> what its rows are, for people.
GROUP_NAMES = {
    "qtype": "question type",
    "hops": "hops",
    "answer_kind": "kind of answer",
    "closed_book": "solved without retrieval",
}


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

    @property
    def first(self) -> StoredRecords:
        """The first record of each question."""
        return self.records.first

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


def groupings(closed_book: Path | None = None) -> dict[str, Grouping]:
    """The breakdowns; with a run without retrieval, also by whether that has the answer.

    Raises:
        RunError: `closed_book` is no run folder, or has no records.
    """
    if closed_book is None:
        return dict(GROUPINGS)
    read_card(closed_book)
    records = read_records(closed_book)
    if not records:
        raise RunError(f"{closed_book} has no records")
    names = {
        qid: "solved" if score == 1.0 else "not solved"
        for qid, score in records.column(get_metric("em").score).items()
    }

    def solved(record: Record) -> Hashable | None:
        return names.get(record.qid)

    return {**GROUPINGS, "closed_book": solved}


def wanted(by_group: bool, closed_book: Path | None) -> dict[str, Grouping] | None:
    """The breakdowns of a table that has them where either option asks for them; else None.

    Raises:
        RunError: as for `groupings`.
    """
    return groupings(closed_book) if by_group or closed_book else None


def members(
    records: StoredRecords, by: Mapping[str, Grouping]
) -> list[tuple[str, str, StoredRecords]]:
    """Breakdown (in words), group and its records, for every group that has any."""
    rows = []
    records.compute(by.values())
    for name, group in by.items():
        groups: dict[str, list[str]] = {}
        for qid, key in records.column(group).items():
            if key is not None:
                groups.setdefault(str(key), []).append(qid)
        shown = GROUP_NAMES.get(name, name)
        rows += [(shown, key, records.only(groups[key])) for key in sorted(groups)]
    return rows
