"""Cells of an experiment, and the file in which an experiment is stored.

    experiment.json   its kind, its cells with their state, and its results
    cells/            a run folder for each cell
    programs/         compiled programs, each shared by the cells that need it

A *cell* is a resolved run config. Results are computed from the records of the cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from ragbench.errors import RunError
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import (
    EXPERIMENT,
    is_run,
    read_json,
    read_object,
    repeats_in,
    write_json,
)

CELLS = "cells"
PROGRAMS = "programs"
VERSION: Literal[1] = 1

Kind = Literal["sweep", "verdict", "choose", "tune", "repeats"]
State = Literal["done", "failed", "stopped", "not run"]


@dataclass(frozen=True)
class Cell:
    """A resolved run config.

    Attributes:
        label: Name of the cell in tables.
        config: The run. Its `out` is the folder of the cell.
        settings: Compile that comes first, into `settings.out`. None if there is none.
        leaves: Settings that a sweep file states, by leaf.
        arm: Label without seed and repeat. Scores of the cells of an arm are pooled.
    """

    label: str
    config: RunConfig
    settings: CompileConfig | None = None
    leaves: Mapping[str, Any] = field(default_factory=dict)
    arm: str = ""

    @property
    def folder(self) -> Path:
        return self.config.folder()

    @property
    def program(self) -> Path | None:
        """Folder of the program that the cell compiles first."""
        return self.settings.out if self.settings else None

    @property
    def uncompiled(self) -> RunConfig:
        """Config of the program before it is compiled, without the controls of the run."""
        return self.config.but(compiled=None, form=False, votes=1)


@dataclass(frozen=True)
class Outcome:
    """State of a cell. `run` is None if the cell has no run folder.

    `error` is what ended the cell, if it failed or a limit stopped it.
    """

    cell: Cell
    state: State = "not run"
    reason: str = ""
    run: Evaluation | None = None
    error: Exception | None = None

    def finished(self) -> Evaluation:
        """Return the run.

        Raises:
            Exception: The error that ended the cell.
        """
        if self.error is not None:
            raise self.error
        if self.run is None:
            raise RunError(f"{self.cell.label} is {self.state}")
        return self.run


class CellRow(BaseModel):
    """State of a cell in `experiment.json`. Folders are relative to the experiment's."""

    model_config = ConfigDict(extra="forbid")

    cell: str
    arm: str = ""
    folder: str
    program: str | None = None
    state: State
    reason: str = ""
    summary: dict[str, Any] | None = None

    @field_validator("folder", "program")
    @classmethod
    def _inside(cls, path: str | None) -> str | None:
        """Refuse a folder outside of the experiment's."""
        if path is not None and (Path(path).is_absolute() or ".." in Path(path).parts):
            raise ValueError("the folder is not within the experiment")
        return path


class Experiment(BaseModel):
    """The content of `experiment.json`."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = VERSION
    kind: Kind
    cells: list[CellRow] = []
    results: dict[str, Any] = {}
    stopped_by: str | None = None


def repeat_cells(cell: Cell, repeats: int) -> list[Cell]:
    """Return the repeats of a cell, starting with the repeat of its config.

    Args:
        cell: The cell. Its `out` is the folder of all repeats.
        repeats: Number of repeats, >= 1. With 1, the result is the cell itself.

    Raises:
        RunError: The folder has a single run and repeats were requested, or the reverse.
    """
    config = cell.config
    if repeats == 1:
        if config.out and repeats_in(config.out):
            raise RunError(f"{config.out} holds repeats; give --repeats, or another --out")
        return [cell]
    folder = config.out or Path("runs") / f"{config.but(repeat=1).name()}-repeats"
    if is_run(folder):
        raise RunError(f"{folder} holds a single run; give --repeats another --out")
    cells: list[Cell] = []
    for number in range(config.repeat, config.repeat + repeats):
        label = ", ".join(filter(None, (cell.label, f"repeat {number}")))
        repeated = config.but(repeat=number, out=folder / f"r{number}")
        cells.append(replace(cell, label=label, config=repeated))
    return cells


def write_experiment(
    folder: Path,
    kind: Kind,
    outcomes: Iterable[Outcome],
    results: Mapping[str, Any],
    stopped_by: str | None = None,
) -> None:
    """Write `experiment.json`.

    Args:
        folder: Folder of the experiment.
        kind: Command that made it.
        outcomes: Its cells.
        results: Results as JSON, computed from the records.
        stopped_by: Limit that ended it.
    """
    rows = []
    for outcome in outcomes:
        cell = outcome.cell
        program = cell.program.relative_to(folder).as_posix() if cell.program else None
        rows.append(
            CellRow(
                cell=cell.label,
                arm=cell.arm,
                folder=cell.folder.relative_to(folder).as_posix(),
                program=program,
                state=outcome.state,
                reason=outcome.reason,
                summary=outcome.run.summary.to_dict() if outcome.run else None,
            ).model_dump()
        )
    document = {"version": VERSION, "kind": kind, "cells": rows, "results": results}
    write_json(folder / EXPERIMENT, {**document, "stopped_by": stopped_by})


def read_experiment(folder: Path, kind: Kind | None = None) -> Experiment:
    """Read `experiment.json`.

    Args:
        folder: Folder of the experiment.
        kind: Kind that is expected. None accepts all.

    Raises:
        RunError: There is none, it is damaged, or of another version or kind.
    """
    path = folder / EXPERIMENT
    if not path.is_file():
        raise RunError(f"{folder} has no finished {kind or 'experiment'} ({EXPERIMENT} is missing)")
    version = read_object(path).get("version")
    if version != VERSION:
        raise RunError(f"{path} has version {version}, not {VERSION}; run the experiment again")
    experiment = read_json(path, Experiment)
    if kind and experiment.kind != kind:
        raise RunError(f"{folder} holds a {experiment.kind}, not a {kind}")
    return experiment
