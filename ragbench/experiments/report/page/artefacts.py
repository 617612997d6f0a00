"""What verdicts, sweeps, tunes, races and compiles say, as the page has it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragbench.experiments import store
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.compare.spending import spending_of
from ragbench.experiments.compare.verdicts import Verdict, reread
from ragbench.experiments.outcomes import CANDIDATES
from ragbench.experiments.report.choice import race_table
from ragbench.experiments.report.comparison import (
    arms_table,
    contrast_rows,
    control_lines,
    headline_of,
    price_line,
)
from ragbench.experiments.report.sweep import validated
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.runs.settings import compiled_from
from ragbench.experiments.runs.summary import Evaluation

Json = dict[str, Any]
#: Kind of artefact -> the file that it leaves.
FILES = {"verdict": "verdict.json", "sweep": "sweep.json", "tune": "tune.json",
         "race": "choose.json", "compile": CANDIDATES}  # fmt: skip
#: What the page draws of each program that a compile tried.
_TRIED = ("number", "order", "mean", "n", "tokens", "shipped")
_FRONT = (
    Column("name", "program"), Column("metric"), Column("n", kind="count"),
    Column("score", kind="score", interval=True),
    Column("difference", kind="gain", interval=True), Column("knobs"),
)  # fmt: skip


def read_artefact(
    kind: str, file: Path, runs: Mapping[Path, Evaluation]
) -> tuple[Json, list[list[Path]]]:
    """The artefact that left `file`, and the folders of `runs` that are seeds of one program."""
    stored = {} if kind == "compile" else store.read_object(file)
    artefact: Json = {"kind": kind, "folder": file.parent.as_posix()}
    seeds: list[list[Path]] = []
    if kind == "verdict":
        verdict = reread(file.parent, runs.__getitem__)
        artefact |= _verdict(verdict)
        for arm in verdict.arms.values():
            seeds.append([run.folder for run in arm])
    elif kind == "sweep":
        arms: dict[str, list[Json]] = {}
        for cell in stored["cells"]:
            arms.setdefault(cell.get("arm", cell["cell"]), []).append(cell)
        artefact |= _sweep(stored, file.parent, arms)
        for cells in arms.values():
            seeds.append([file.parent / "cells" / cell["folder"] for cell in cells])
    elif kind == "race":
        artefact |= _race(stored)
    elif kind == "compile":
        artefact |= _compile(file, list(runs.values()))
    else:
        artefact["table"] = _front(file.parent)
    return artefact, seeds


def _verdict(verdict: Verdict) -> Json:
    headlines = {}
    controls = {}
    for metric in verdict.design.metrics:
        headlines[metric] = headline_of(verdict, metric)
        controls[metric] = control_lines(verdict, metric)
    return {
        "headlines": headlines,
        "controls": controls,
        "price": price_line(verdict),
        "contrasts": contrast_rows(verdict),
        "table": _cells(arms_table(verdict)),
        "compiled": verdict.arms["compiled"][0].folder.as_posix(),
    }


def _sweep(stored: Mapping[str, Any], folder: Path, arms: Mapping[str, Sequence[Json]]) -> Json:
    """The comparisons of a sweep, and its cells, of which those of one arm are one."""
    contrasts = []
    for contrast in stored["contrasts"]:
        for metric, scores in contrast["scores"].items():
            row = {"cell": contrast["cell"], "baseline": contrast["baseline"], "metric": metric}
            row |= {"n": scores["n"], "verdict": scores["verdict"]}
            row |= with_interval("difference", scores["difference"], scores["interval"])
            corrected = scores.get("corrected_interval") or {}
            for end in ("low", "high"):
                row[f"corrected_{end}"] = corrected.get(end)
            contrasts.append(row)
    cells = []
    for label, cells_of_arm in arms.items():
        outcome = cells_of_arm[0]
        place = folder / "cells" / outcome["folder"]
        for cell in cells_of_arm:
            if cell["state"] != "done":
                outcome = cell
        row = {"label": label, "folder": place.as_posix()}
        cells.append({**row, "state": outcome["state"], "reason": outcome["reason"]})
    return {"cells": cells, "contrasts": contrasts}


def _race(stored: Mapping[str, Any]) -> Json:
    saved = f"{1 - stored['share']:.0%} of the questions of the full table were not asked"
    return {"sentence": stored["advice"], "saved": saved, "runners": race_table(stored).records(),
            "metric": stored["metric"], "stream": stored["stream"]}  # fmt: skip


def _compile(file: Path, runs: Sequence[Evaluation]) -> Json:
    """The programs that were tried, in their order, and when a run of the shipped one pays back."""
    card = read_sidecar(file.parent)
    tried = []
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        tried.append({name: row[name] for name in _TRIED})
    tried.sort(key=lambda row: row["order"] or 0)
    pays = {}
    for after, before in compiled_from(runs).items():
        if runs[after].card.compiled == card.program_sha256:
            spent = spending_of([runs[before]], [runs[after]], [card])
            for unit, back in (("$", spent.usd), ("tokens", spent.tokens)):
                pays[unit] = {"once": back.once, "before": back.before, "after": back.after,
                              "words": back.words()}  # fmt: skip
    return {
        "program": card.program, "optimizer": str(card.optimizer.get("name")),
        "seed": card.optimizer.get("seed"), "metric": card.scores["metric"],
        "n": card.scores["n"], "tried": tried, "pays": pays,
    }  # fmt: skip


def _front(folder: Path) -> list[list[str]]:
    rows = []
    for path in sorted((folder / "front").glob("*")):
        card = read_sidecar(path)
        knobs = ", ".join(f"{name}={value}" for name, value in card.knobs.items())
        rows.append({"name": path.name, **validated(card), "knobs": knobs})
    return _cells(Table("tune", _FRONT, rows))


def _cells(table: Table) -> list[list[str]]:
    return [[column.heading for column in table.columns], *table.cells()]
