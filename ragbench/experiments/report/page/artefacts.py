"""Summaries of verdicts, sweeps and compiles for the page."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.cells.cell import CellRow, read_experiment
from ragbench.experiments.cells.verdict import reread
from ragbench.experiments.compare.spending import spending_of
from ragbench.experiments.compare.verdicts import Verdict
from ragbench.experiments.outcomes import CANDIDATES
from ragbench.experiments.report.matrix import arrange, sweep_headline
from ragbench.experiments.report.verdict import answer_of, headline_of
from ragbench.experiments.runs.settings import compiled_from
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import EXPERIMENT, RunCard

Json = dict[str, Any]
#: Maps each kind of artefact to its file.
FILES = {"experiment": EXPERIMENT, "compile": CANDIDATES}
#: Fields of each tried program that the page draws.
_TRIED = ("number", "order", "mean", "n", "tokens", "shipped")


def read_artefact(
    kind: str, file: Path, runs: Mapping[Path, Evaluation]
) -> tuple[Json, list[list[Path]]]:
    """Read an artefact.

    Args:
        kind: "experiment" or "compile".
        file: The file of the artefact.
        runs: Runs of the page by folder.

    Returns:
        JSON-ready content, and the folders of runs that are seeds of one program.
    """
    cells: list[CellRow] = []
    if kind == "experiment":
        experiment = read_experiment(file.parent)
        kind, cells, results = experiment.kind, experiment.cells, experiment.results
    artefact: Json = {"kind": kind, "folder": file.parent.as_posix()}
    seeds: list[list[Path]] = []
    if kind == "verdict":
        verdict = reread(file.parent, runs.__getitem__)
        artefact |= _verdict(verdict)
        for arm in verdict.arms.values():
            seeds.append([run.folder for run in arm])
    elif kind == "sweep":
        arms: dict[str, list[CellRow]] = {}
        for cell in cells:
            arms.setdefault(cell.arm or cell.cell, []).append(cell)
        artefact |= _sweep(results, file.parent, arms, runs)
        for arm_cells in arms.values():
            seeds.append([file.parent / cell.folder for cell in arm_cells])
    elif kind == "compile":
        artefact |= _compile(file, list(runs.values()))
    return artefact, seeds


def _verdict(verdict: Verdict) -> Json:
    """Return the sentences of a verdict by metric; the page shows its arms as programs."""
    headlines = {}
    answers = {}
    for metric in verdict.design.metrics:
        headlines[metric] = headline_of(verdict, metric)
        answers[metric] = answer_of(verdict, metric)
    return {"headlines": headlines, "answers": answers}


def _sweep(
    stored: Mapping[str, Any], folder: Path, arms: Mapping[str, Sequence[CellRow]],
    runs: Mapping[Path, Evaluation],
) -> Json:  # fmt: skip
    """Return the cells of a sweep as a grid of varied settings, and its unfinished cells."""
    contrasts: dict[str, Json] = {}
    baselines = set()
    for contrast in stored["contrasts"]:
        baselines.add(contrast["baseline"])
        words = {}
        for metric, scores in contrast["scores"].items():
            words[metric] = {"difference": scores["difference"], "word": scores["outcome"]}
        contrasts[contrast["cell"]] = words
    places: dict[str, RunCard] = {}
    entries: dict[str, Json] = {}
    lines = []
    for label, cells in arms.items():
        for cell in cells:
            if cell.state != "done":
                lines.append(f"{label}: {cell.state} {cell.reason}".strip())
        path = folder / cells[0].folder
        if path in runs:
            places[label] = runs[path].card
            entries[label] = {
                "folder": path.as_posix(),
                "baseline": label in baselines,
                "contrasts": contrasts.get(label, {}),
            }
    rows, columns = arrange(places, entries)
    headlines = {}
    for metric in dict.fromkeys(chain.from_iterable(contrasts.values())):
        of_metric = {}
        for label, words in contrasts.items():
            of_metric[label] = words.get(metric, {}).get("word", "")
        headlines[metric] = sweep_headline(metric, len(arms), of_metric)
    return {"rows": rows, "columns": columns, "lines": lines, "headlines": headlines}


def _compile(file: Path, runs: Sequence[Evaluation]) -> Json:
    """Return the tried programs, in order, and the break-even point of the shipped one."""
    card = read_sidecar(file.parent)
    tried = []
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        tried.append({name: row[name] for name in _TRIED})
    tried.sort(key=lambda row: row["order"] or 0)
    lines = []
    for after, before in compiled_from(runs).items():
        if runs[after].card.compiled == card.program_sha256:
            spent = spending_of([runs[before]], [runs[after]], [card])
            for unit, back in (("$", spent.usd), ("tokens", spent.tokens)):
                lines.append(f"In {unit}: {back.words()}.")
    return {
        "program": card.program, "optimizer": str(card.optimizer.get("name")),
        "seed": card.optimizer.get("seed"), "metric": card.scores["metric"],
        "n": card.scores["n"], "tried": tried, "pays_lines": lines,
    }  # fmt: skip
