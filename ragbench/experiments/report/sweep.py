"""Reports on sweeps and compiled programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragbench.errors import RunError
from ragbench.experiments.artifacts import SIDECAR, Sidecar, read_sidecar
from ragbench.experiments.cells.estimate import estimate_cells
from ragbench.experiments.cells.sweep import SweepResult, arms_of, available, missing_lines
from ragbench.experiments.cells.sweep_file import Sweep
from ragbench.experiments.compare.contrasts import Contrast
from ragbench.experiments.compare.spending import per_question
from ragbench.experiments.plans import ASKED
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.report.matrix import sweep_section
from ragbench.experiments.report.repeats import pooled_table
from ragbench.experiments.report.rows import COMPARED, FOR_MACHINES, compared_rows
from ragbench.experiments.report.sections import Report, Section, full
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.report.tables import failure_table, run_table, title_of
from ragbench.experiments.runs.summary import Evaluation

_PROGRAMS = (
    Column("folder"),
    Column("program"),
    Column("optimizer", drop=1),
    Column("seed", kind="number", drop=2),
    Column("lm", "LM", drop=3),
    Column("metric", drop=7),
    Column("n", kind="count", drop=6),
    Column("score", kind="score", interval=True),
    Column("difference", kind="gain", interval=True),
    Column("outcome", drop=4),
    Column("left_out", "left out", kind="count", drop=9),
    Column("cost_usd", "cost $", "usd", drop=8),
)


def sweep_report(swept: SweepResult) -> Report:
    """Yield the cells, notes on them, and the comparisons."""
    ran = {}
    for o in swept.outcomes:
        if o.run and o.run.records:
            ran[o.cell.label] = o.run
    if ran and len(swept.outcomes) > 1:
        yield _brief(swept, ran)
    yield from full(_tables(swept, ran))
    for outcome in swept.outcomes:
        if outcome.state != "done":
            why = f": {outcome.reason}" if outcome.reason else ""
            yield f"{outcome.cell.label}: {outcome.state}{why}"
    for contrast in swept.contrasts:
        if contrast.why:
            yield f"{contrast.cell}: not compared with {contrast.baseline}: {contrast.why}"
    yield from missing_lines(swept.sweep)
    done = sum(outcome.state == "done" for outcome in swept.outcomes)
    line = f"{done} of {len(swept.outcomes)} cells done: {swept.sweep.folder}"
    if swept.stopped_by:
        yield f"stopped by {swept.stopped_by}; {line}"
    else:
        if done < len(swept.outcomes):
            line += "; the same command retries the others"
        yield line


def _brief(swept: SweepResult, ran: Mapping[str, Evaluation]) -> Section:
    """Return the grid of the cells that ran, by F1 or by the first compared metric."""
    metrics: dict[str, None] = {}
    for contrast in swept.contrasts:
        metrics |= dict.fromkeys(contrast.scores)
    metric = "f1" if "f1" in metrics else next(iter(metrics), "f1")
    contrasts = {}
    for contrast in swept.contrasts:
        if metric in contrast.scores:
            for outcome in swept.outcomes:
                if contrast.cell in (outcome.cell.label, outcome.cell.arm):
                    contrasts[outcome.cell.label] = contrast.scores[metric]
    return sweep_section(ran, metric, contrasts)


def _tables(swept: SweepResult, ran: Mapping[str, Evaluation]) -> Report:
    if ran:
        titles = zip(*(title_of(run).split(", ") for run in ran.values()), strict=False)
        yield ", ".join(words[0] for words in titles if len(set(words)) == 1)
        yield replace(run_table(list(ran.values()), list(ran)), name="cells")
    yield from _pooled(swept)
    yield from _published(swept)
    for outcome in swept.outcomes:
        if outcome.run and outcome.run.summary.failed:
            yield outcome.cell.label
            yield failure_table(outcome.run.records)
    if any(contrast.scores for contrast in swept.contrasts):
        yield _contrasts(swept.contrasts)


_PUBLISHED = (
    Column("cell"),
    Column("figure"),
    Column("ours", kind="number"),
    Column("published", kind="number"),
    Column("source", drop=1),
)


def _published(swept: SweepResult) -> Report:
    """Yield a table of published figures next to ours, if the sweep has any."""
    rows = []
    for published in swept.sweep.published:
        for outcome in swept.outcomes:
            if not published.is_of(outcome.cell):
                continue
            for figure, value in published.figures.items():
                row = {"cell": outcome.cell.label, "figure": figure, "published": value}
                ours = _figure(outcome.run, figure) if outcome.run else None
                rows.append({**row, "ours": ours, "source": published.source})
    if rows:
        note = "other prompts, LMs and questions: compare orders of magnitude only"
        yield Table("published", _PUBLISHED, rows, notes=[note])


def _figure(run: Evaluation, figure: str) -> float | None:
    """Return the mean of a metric, of calls or tokens, or a quantile of the seconds."""
    summary = run.summary
    if figure in ("p50", "p95"):
        return summary.latency_s.get(figure)
    if figure in ("calls", "tokens"):
        return per_question([run], figure)
    return summary.scores.get(figure)


def _pooled(swept: SweepResult) -> Report:
    """Yield a row for each set of cells that differ only in seed and repeat, if any."""
    arms: dict[str, list[Evaluation]] = {}
    for label, outcomes in arms_of(swept.outcomes).items():
        for outcome in outcomes:
            if outcome.state == "done" and outcome.run is not None:
                arms.setdefault(label, []).append(outcome.run)
    if any(len(arm) > 1 for arm in arms.values()):
        yield pooled_table(list(arms.values()), list(arms))


def estimate_report(
    sweep: Sweep, *, pilot: int | None = None, watch: ProgressListener = SILENT
) -> Report:
    """Estimate each cell, for the questions that it has not answered yet.

    Args:
        sweep: The cells.
        pilot: Questions to run first in each cell that needs no compile.
        watch: The receiver of the pilot's progress.
    """
    yield from estimate_cells(available(sweep), pilot=pilot, watch=watch)
    yield from missing_lines(sweep)


def _contrasts(contrasts: Sequence[Contrast]) -> Table:
    rows = []
    for contrast in contrasts:
        whose = {"cell": contrast.cell, "baseline": contrast.baseline}
        rows += compared_rows(whose, contrast.scores)
    verdict = replace(FOR_MACHINES[0], for_machines=False)
    identifying = (Column("cell"), Column("baseline", "against", drop=1), Column("metric"))
    return Table("contrasts", (*identifying, *COMPARED, verdict, *FOR_MACHINES[1:]), rows)


def programs_report(folder: Path) -> Report:
    """Yield a row for each compiled program under `folder`, then the unusable ones.

    Raises:
        RunError: The folder is missing.
    """
    if not folder.is_dir():
        raise RunError(f"no folder {folder}. `ragbench compile` creates compiled/.")
    rows = []
    problems = []
    for path in sorted({p.parent for name in (SIDECAR, ASKED) for p in folder.rglob(name)}):
        if path.parent.name == "candidates":  # The compile has a row already.
            continue
        try:
            rows.append(_program_row(path, read_sidecar(path)))
        except RunError as error:
            problems.append(str(error))
    if rows:
        note = "scores are on the validation questions that each was selected on"
        yield Table("compiled", _PROGRAMS, rows, notes=[note])
    yield from problems
    if not rows and not problems:
        yield "no compiled programs found"


def _program_row(folder: Path, card: Sidecar) -> dict[str, Any]:
    optimizer = card.optimizer
    program = card.program
    if card.variant not in ("", "default"):
        program += f" ({card.variant})"
    return {
        "folder": str(folder),
        "program": program,
        "optimizer": f"{optimizer.get('name')} {optimizer.get('preset', '')}".strip(),
        "seed": optimizer.get("seed"),
        "lm": str(card.lms.get("student")),
        **validated(card),
        "outcome": card.outcome or None,
        "left_out": len(card.left_out),
        "cost_usd": card.cost["as_if"]["all"]["cost_usd"],
    }


def validated(card: Sidecar) -> dict[str, Any]:
    """Return the validation metric, n, score and gain of a compiled program as a row."""
    scores = card.scores
    compiled = card.scores["compiled"]
    return {
        "metric": scores["metric"],
        "n": scores["n"],
        **with_interval("score", compiled["mean"], compiled.get("interval")),
        **with_interval("difference", scores["difference"], scores.get("interval")),
    }
