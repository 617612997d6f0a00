"""One compiled program on other LMs and other data: does what it learned carry over?

Every cell of the matrix is two ordinary runs, `<lm>-<data>/compiled` and `.../zero-shot`, over the
same questions; `transfer.json` is computed from their records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from ragbench.errors import StoppedError
from ragbench.experiments.artefact import Sidecar, read_sidecar
from ragbench.experiments.compare import compare
from ragbench.experiments.compile import Say
from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.evaluate import Evaluation, compiled_fields, evaluate
from ragbench.experiments.report import console, plain, print_table
from ragbench.experiments.rundir import RunDir, write_json
from ragbench.experiments.runner import OnRecord, OnStart
from ragbench.experiments.setup import lm_of
from ragbench.experiments.summary import HEADLINE
from ragbench.metrics.stats import Comparison, correct

TRANSFER = "transfer.json"


@dataclass(frozen=True)
class Cell:
    """One LM on one data set; `scores` by metric, compiled against zero-shot."""

    lm: str
    data: str
    compiled: Evaluation
    zero_shot: Evaluation
    scores: Mapping[str, Comparison]
    home: bool  # whether the program was compiled with this LM and data set


def transfer(
    artefact: Path,
    config: RunConfig,
    *,
    lms: Sequence[str],
    data: Sequence[str],
    metrics: Sequence[str] = HEADLINE,
    say: Say = print,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
) -> list[Cell]:
    """The matrix of `lms` by `data` (`NAME` or `NAME=FILE`), p-values corrected over all cells.

    What is finished is not asked again.

    Raises:
        DataError: a cell's questions were used to compile.
        StoppedError: a limit of spending was reached.
        RagbenchError: something else the user can mend.
    """
    sidecar = read_sidecar(artefact)
    folder = folder_of(config, artefact)
    for lm in lms:
        lm_of(config.model_copy(update={"lm": lm}), lm, main=True)  # refused before all else
    cells = []
    with RunDir(folder).locked():
        for lm in lms:
            for name in data:
                say(f"cell {lm}, {name}")
                at = folder / f"{_slug(lm)}-{_slug(name)}"
                runs = [
                    evaluate(each, on_start=on_start, on_record=on_record)
                    for each in _configs(config, artefact, lm, name, at)
                ]
                _stop(runs, f"{lm}, {name}")
                found = compare(runs[1], runs[0], metrics=metrics).scores
                cells.append(Cell(lm, name, runs[0], runs[1], found, _home(sidecar, runs[0])))
        cells = _corrected(cells)
        write_json(folder / TRANSFER, {"artefact": str(artefact), "cells": _plain(cells)})
    return cells


def folder_of(config: RunConfig, artefact: Path) -> Path:
    """Where the matrix goes."""
    return config.out or Path("transfers") / _slug(str(artefact))


def _stop(runs: Sequence[Evaluation], cell: str) -> None:
    for run in runs:
        if run.stopped_by:
            where = f"{run.stopped_by} in cell {cell}, {run.progress.words()}"
            raise StoppedError(where, partial=runs)


def print_matrix(cells: Sequence[Cell]) -> None:
    """Print one table per metric, LMs down and data across, and each cell's verdict in words."""
    out = console()
    data = list(dict.fromkeys(cell.data for cell in cells))
    for metric in cells[0].scores:
        table = Table(box=box.MARKDOWN)
        table.add_column(f"{metric}: compiled (against zero-shot)")
        for name in data:
            table.add_column(plain(name), justify="right")
        for lm in dict.fromkeys(cell.lm for cell in cells):
            row = {cell.data: cell for cell in cells if cell.lm == lm}
            table.add_row(plain(lm), *(_shown(row[name], metric) for name in data))
        print_table(out, table)
    if any(cell.home for cell in cells):
        out.print(plain("* compiled with this LM and data set"))
    for cell in cells:
        for metric, found in cell.scores.items():
            out.print(plain(f"{cell.lm}, {cell.data}, {metric}: {found.verdict}"), soft_wrap=True)


def _shown(cell: Cell, metric: str) -> str:
    found = cell.scores[metric]
    return f"{found.mean_b:.3f} ({found.difference:+.3f}){'*' if cell.home else ''}"


def _configs(
    config: RunConfig, artefact: Path, lm: str, data: str, folder: Path
) -> tuple[RunConfig, RunConfig]:
    """The configs of the compiled and the zero-shot run."""
    name, _, file = data.partition("=")
    over: dict[str, Any] = {**compiled_fields(artefact), "k": None, "lm": lm, "dataset": name}
    if file:
        over |= {"data_file": file, "corpus_file": None, "chunk_file": None, "hub": False}
        over["alias_file"] = None
    base = {**config.model_dump(), "set": {}}
    whole = make_config({**over, "out": folder / "compiled", "compiled": artefact}, base=base)
    return whole, whole.model_copy(update={"compiled": None, "out": folder / "zero-shot"})


def _corrected(cells: Sequence[Cell]) -> list[Cell]:
    family = iter(correct([found for cell in cells for found in cell.scores.values()]))
    return [
        replace(cell, scores={metric: next(family) for metric in cell.scores}) for cell in cells
    ]


def _home(sidecar: Sidecar, run: Evaluation) -> bool:
    same_lm = bool(run.card["model"] == sidecar.lms.get("student"))
    return same_lm and bool(run.card["data"]["digest"] == sidecar.data.digest)


def _plain(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [
        {
            "lm": cell.lm,
            "data": cell.data,
            "home": cell.home,
            "folder": cell.compiled.folder.parent.name,
            "scores": {metric: asdict(found) for metric, found in cell.scores.items()},
        }
        for cell in cells
    ]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "_", text).strip("_")
