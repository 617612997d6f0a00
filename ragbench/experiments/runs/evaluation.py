"""A run as it is on disk, opened without DSPy, data or models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.experiments.records import (
    Loaded,
    RunCard,
    StoredRecords,
    lost_calls,
    read_card,
    read_records,
    write_json,
)
from ragbench.experiments.runs.progress import Progress
from ragbench.experiments.runs.summary import (
    SUMMARY,
    headline_intervals,
    shown,
    stop_reason,
    summarize,
)
from ragbench.experiments.runs.summary_model import Summary
from ragbench.record import Totals, billed


@dataclass(frozen=True)
class Evaluation:
    """A run as it is on disk: folder, config card, records by question id, summary."""

    folder: Path
    card: RunCard
    records: StoredRecords
    first: StoredRecords  # the first record of each question
    summary: Summary
    corrupt: tuple[int, ...]
    replaced: int  # records that a later one of the same question replaced
    progress: Progress
    stopped_by: str  # the limit of spending that ended it just now, where one did
    #: What questions were billed that a kill kept from leaving a record.
    lost: Totals

    @classmethod
    def of(cls, folder: Path, card: RunCard, loaded: Loaded, stopped_by: str = "") -> Evaluation:
        """The run in `folder`, of the records that were `loaded`."""
        return cls(
            folder=folder,
            card=card,
            records=loaded.records,
            first=loaded.first,
            summary=summarize(loaded.records, loaded, card.questions),
            corrupt=tuple(loaded.corrupt),
            replaced=len(loaded.earlier),
            progress=Progress.of(loaded, card.questions),
            stopped_by=stopped_by,
            lost=billed(lost_calls(folder)),
        )

    def stored(self) -> dict[str, Any]:
        """What `summary.json` holds: the summary, and the 95 % interval of each headline mean."""
        intervals = {
            name: [round(each.low, 6), round(each.high, 6)]
            for name, each in headline_intervals(self.records).items()
        }
        return {**self.summary.to_dict(), "intervals": intervals}

    @property
    def unreadable(self) -> int:
        """Questions that ended without one reply of the model that could be read."""
        return sum(why == "parse_fallback" for why in self.records.column(stop_reason).values())


def reopen(folder: Path) -> Evaluation:
    """The run in `folder`, its summary computed from its records; writes nothing.

    Raises:
        RunError: it is not a run folder.
    """
    return Evaluation.of(folder, read_card(folder), read_records(folder, shown()))


def write_summary(folder: Path) -> None:
    """Write the summary of the run in `folder`, which this process holds, from its records.

    Raises:
        RunError: it is not a run folder, or cannot be written.
    """
    write_json(folder / SUMMARY, reopen(folder).stored())
