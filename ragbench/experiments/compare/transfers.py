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

from ragbench.errors import StoppedError
from ragbench.experiments.artifacts import Sidecar, read_sidecar
from ragbench.experiments.compare.paired import compare
from ragbench.experiments.compile import OnMessage
from ragbench.experiments.config import RunConfig, make_config
from ragbench.experiments.records import locked, write_json
from ragbench.experiments.runs import (
    HEADLINE,
    Evaluation,
    OnPrepare,
    OnRecord,
    OnStart,
    RunContext,
    build,
    compiled_fields,
    evaluate,
    lm_of,
)
from ragbench.metrics import Comparison, correct

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
    on_message: OnMessage = print,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> list[Cell]:
    """The matrix of `lms` by `data` (`NAME` or `NAME=FILE`), p-values corrected over all cells.

    What is finished is not asked again.

    Raises:
        DataError: a cell's questions were used to compile.
        StoppedError: a limit of spending was reached.
        RagbenchError: something else the user can mend.
    """
    sidecar = read_sidecar(artefact)
    folder = transfer_folder(config, artefact)
    for lm in lms:
        lm_of(config.but(lm=lm), lm, main=True)  # refused before all else
    cells = []
    shared: dict[str, RunContext] = {}  # by data set: its questions and index are made once
    with locked(folder):
        for lm in lms:
            for name in data:
                on_message(f"cell {lm}, {name}")
                at = folder / f"{_slug(lm)}-{_slug(name)}"
                configs = _configs(config, artefact, lm, name, at)
                if name not in shared:
                    shared[name] = build(configs[0])
                runs = [
                    evaluate(
                        each,
                        like=shared[name],
                        on_start=on_start,
                        on_record=on_record,
                        on_prepare=on_prepare,
                    )
                    for each in configs
                ]
                _stop(runs, f"{lm}, {name}")
                scores = compare(runs[1], runs[0], metrics=metrics).scores
                cells.append(Cell(lm, name, runs[0], runs[1], scores, _home(sidecar, runs[0])))
        cells = _corrected(cells)
        write_json(folder / TRANSFER, {"artefact": str(artefact), "cells": _plain(cells)})
    return cells


def transfer_folder(config: RunConfig, artefact: Path) -> Path:
    """Where the matrix goes."""
    return config.out or Path("transfers") / _slug(str(artefact))


def _stop(runs: Sequence[Evaluation], cell: str) -> None:
    for run in runs:
        if run.stopped_by:
            where = f"{run.stopped_by} in cell {cell}, {run.progress.words()}"
            raise StoppedError(where, partial=runs)


def _configs(
    config: RunConfig, artefact: Path, lm: str, data: str, folder: Path
) -> tuple[RunConfig, RunConfig]:
    """The configs of the compiled and the zero-shot run."""
    name, _, file = data.partition("=")
    over: dict[str, Any] = {**compiled_fields(artefact), "lm": lm, "dataset": name}
    if file:
        over |= {"data_file": file, "corpus_file": None, "chunk_file": None, "hub": False}
        over["alias_file"] = None
    base = {**config.model_dump(), "set": {}}
    whole = make_config({**over, "out": folder / "compiled", "compiled": artefact}, base=base)
    return whole, whole.but(compiled=None, out=folder / "zero-shot")


def _corrected(cells: Sequence[Cell]) -> list[Cell]:
    family = iter(correct([comparison for cell in cells for comparison in cell.scores.values()]))
    return [
        replace(cell, scores={metric: next(family) for metric in cell.scores}) for cell in cells
    ]


def _home(sidecar: Sidecar, run: Evaluation) -> bool:
    same_lm = bool(run.card.model == sidecar.lms.get("student"))
    return same_lm and bool(run.card.data.digest == sidecar.data.digest)


def _plain(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [
        {
            "lm": cell.lm,
            "data": cell.data,
            "home": cell.home,
            "folder": cell.compiled.folder.parent.name,
            "scores": {metric: asdict(comparison) for metric, comparison in cell.scores.items()},
        }
        for cell in cells
    ]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "_", text).strip("_")
