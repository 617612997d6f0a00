"""Runs as Python objects: records, means, data frames and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.errors import needs_extra
from ragbench.experiments.export import open_runs, rows_of
from ragbench.experiments.report.table import written
from ragbench.experiments.report.tables import run_table
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import get_metric
from ragbench.record import Record

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A finished or interrupted run: its folder, its records and their means."""

    evaluation: Evaluation

    @property
    def folder(self) -> Path:
        """Where the run is on disk."""
        return self.evaluation.folder

    @property
    def records(self) -> list[Record]:
        """One record per question, in the order first asked."""
        return list(self.evaluation.records.values())

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the table shows of the run."""
        return self.evaluation.summary.to_dict()

    @property
    def failed(self) -> int:
        """How many of its questions failed."""
        return sum(record.failed for record in self.records)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Mean of each headline metric; a failed question counts as the worst."""
        return dict(self.evaluation.summary.scores)

    def mean(self, name: str) -> float | None:
        """The mean of the metric called `name` over the questions that have it; None if none has.

        Raises:
            UnknownNameError: there is no such metric.
        """
        scores = [get_metric(name).score(record) for record in self.records]
        known = [value for value in scores if value is not None]
        return sum(known) / len(known) if known else None

    def to_pandas(self) -> pd.DataFrame:
        """One row per question, with the columns of `ragbench export` (docs/export.md).

        Raises:
            MissingExtraError: pandas is not installed.
        """
        with needs_extra("to_pandas"):
            import pandas as pd
        return pd.DataFrame(rows_of(open_runs([self.folder])))

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        return f"Run({self.folder}, n={len(self.records)}, failed={self.failed}, {scores})"

    def _repr_html_(self) -> str:
        return written(run_table([self.evaluation]), "html")
