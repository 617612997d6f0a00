"""What is exported of a run: its card, its summary, and its records with all their scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ragbench.errors import UnknownNameError
from ragbench.experiments.runs import Evaluation, reopen
from ragbench.experiments.score import scored_records
from ragbench.metrics import get_metric
from ragbench.record import Record


@dataclass(frozen=True)
class ExportedRun:
    """A run, its records in the order first asked, and the metrics to give beside the stored ones.

    The records hold what judges said when the run was scored.
    """

    evaluation: Evaluation
    records: Sequence[Record]
    metrics: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.evaluation.folder.resolve().name

    @property
    def split(self) -> str:
        """The part of the data that the questions are of; empty where the card does not say."""
        return str(self.evaluation.card.identity.get("split", ""))

    @cached_property
    def scores(self) -> dict[str, list[float | None]]:
        """Scores of all records by metric, in their order; those of failed ones are the worst."""
        names = dict.fromkeys([*(n for r in self.records for n in r.scores), *self.metrics])
        return {name: [_score(name, record) for record in self.records] for name in names}


def _score(name: str, record: Record) -> float | None:
    try:
        return get_metric(name).score(record)
    except UnknownNameError:  # a record of another version, or of a plug-in that is gone
        return record.scores.get(name)


def open_runs(folders: Iterable[Path], metrics: Sequence[str] = ()) -> list[ExportedRun]:
    """The runs in `folders`; reading writes nothing.

    Raises:
        RunError: one is no run folder, has no records, or has records that cannot be read.
        UnknownNameError: there is no such metric.
    """
    for name in metrics:
        get_metric(name)
    return [_open(folder, metrics) for folder in folders]


def _open(folder: Path, metrics: Sequence[str]) -> ExportedRun:
    evaluation = reopen(folder)
    scored = scored_records(folder)
    return ExportedRun(evaluation, [scored[qid] for qid in evaluation.records], metrics)
