"""A run as it is on disk, opened without DSPy, data or models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.experiments.runs.summary import (
    headline_intervals,
    stop_reason,
    summarize,
)
from ragbench.experiments.runs.summary_model import Progress, Summary
from ragbench.experiments.store import (
    RunCard,
    StoredRecords,
    lost_calls,
    preparation_calls,
    read_card,
    read_records,
)
from ragbench.record import LM_KINDS, Call, Totals, billed


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
        return cls(
            folder=folder,
            card=card,
            records=records,
            summary=summarize(records, card.questions, whole=True),
            progress=Progress.of(records, card.questions),
            stopped_by=stopped_by,
            lost=billed(lost_calls(folder)),
            prepared=billed(filter(_is_cost, preparation_calls(folder))),
        )

    @property
    def first(self) -> StoredRecords:
        """The first record of each question."""
        return self.records.first

    def stored(self) -> dict[str, Any]:
        """What `summary.json` holds: the summary, and the 95 % interval of each headline mean."""
        intervals = {
            name: [round(each.low, 6), round(each.high, 6)]
            for name, each in headline_intervals(self.records).items()
        }
        return {**self.summary.to_dict(), "intervals": intervals}

    @property
    def all_failed(self) -> bool:
        """Whether not one of its questions was answered."""
        return bool(self.records) and self.summary.failed == len(self.records)

    @property
    def unreadable(self) -> int:
        """Questions that ended without one reply of the model that could be read."""
        return sum(why == "parse_fallback" for why in self.records.column(stop_reason).values())


def _is_cost(call: Call) -> bool:
    return call.kind in LM_KINDS or call.cost_usd != 0  # an embedder of this machine is free


def reopen(folder: Path) -> Evaluation:
    """The run in `folder`, its summary computed from its records; writes nothing.

    Raises:
        RunError: it is not a run folder.
    """
    return Evaluation.of(folder, read_card(folder), read_records(folder))
