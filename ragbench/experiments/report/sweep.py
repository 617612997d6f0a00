"""A sweep as people read it: a row per cell, and each cell against its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from ragbench.experiments.artifacts import SIDECAR
from ragbench.experiments.compile import estimate_compile
from ragbench.experiments.estimates import Estimate, estimate_run, in_all
from ragbench.experiments.report.comparison import shown_interval
from ragbench.experiments.report.means import mean_with_half
from ragbench.experiments.report.tables import (
    LEAST,
    console,
    plain,
    print_failures,
    print_table,
    run_table,
    title_of,
)
from ragbench.experiments.runs import Evaluation
from ragbench.experiments.sweep import Contrast, Sweep, Swept, checked


def print_swept(swept: Swept) -> None:
    """Print the cells, what the tables do not show of them, and the comparisons."""
    out = console()
    ran = [outcome for outcome in swept.outcomes if outcome.run and outcome.run.records]
    if ran:
        out.print(plain(_shared_title([o.run for o in ran if o.run])), soft_wrap=True)
        labels = [outcome.cell.label for outcome in ran]
        print_table(run_table([o.run for o in ran if o.run], labels), "cells", drop=LEAST)
        out.print(plain("calls, path (longest chain of calls), searches, tokens: per question"))
    for outcome in swept.outcomes:
        if outcome.state != "done":
            why = f": {outcome.reason}" if outcome.reason else ""
            out.print(plain(f"{outcome.cell.label}: {outcome.state}{why}"), soft_wrap=True)
        if outcome.run and outcome.run.summary.failed:
            out.print(plain(outcome.cell.label))
            print_failures(out, outcome.run)
    if any(contrast.scores for contrast in swept.contrasts):
        print_table(_contrasts(swept.contrasts), "contrasts")
    for contrast in swept.contrasts:
        if contrast.why:
            why = f"not compared with {contrast.baseline}: {contrast.why}"
            out.print(plain(f"{contrast.cell}: {why}"), soft_wrap=True)
    out.print(plain(_last(swept)), soft_wrap=True)


def _shared_title(runs: Sequence[Evaluation]) -> str:
    """Of data, retriever, LM and adapter, those that all runs have in common."""
    parts = zip(*(title_of(run).split(", ") for run in runs), strict=False)
    return ", ".join(part[0] for part in parts if len(set(part)) == 1)


def print_estimate(sweep: Sweep) -> None:
    """Print each cell with what it would spend, for the questions that it has not answered yet.

    Raises:
        RagbenchError: a cell cannot run, or its program cannot be rehearsed.
    """
    out, runs = console(), list[Estimate]()
    compiles: list[Estimate] = []
    programs: set[Path] = set()
    for number, (cell, run_context, made) in enumerate(checked(sweep), start=1):
        lines = []
        if made and made.folder not in programs and not (made.folder / SIDECAR).is_file():
            programs.add(made.folder)
            compiles.append(estimate_compile(made))
            lines = compiles[-1].lines()
        runs.append(estimate_run(run_context))
        lines += runs[-1].lines()
        if made:
            lines.append("  not including demonstrations that compiling may add to the prompts")
        out.print(plain(f"[{number}/{len(sweep.cells)}] {cell.label}"), soft_wrap=True)
        for line in lines:
            out.print(plain(f"  {line}"), soft_wrap=True)
    extra = f", and {len(compiles)} compiles" if compiles else ""
    for line in in_all(f"in all, {len(runs)} cells{extra}", [*runs, *compiles]).lines():
        out.print(plain(line), soft_wrap=True)


def _contrasts(contrasts: Sequence[Contrast]) -> Table:
    table = Table(box=box.MARKDOWN)
    names = ("cell", "against", "metric", "n", "A", "B", "B - A", "95 % interval", "p (Holm)")
    for name in (*names, "verdict"):
        right = name in names[3:]
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for contrast in contrasts:
        for metric, c in contrast.scores.items():
            table.add_row(
                plain(contrast.cell), plain(contrast.baseline), metric, str(c.n),
                mean_with_half(c.mean_a, c.interval_a), mean_with_half(c.mean_b, c.interval_b),
                f"{c.difference:+.3f}",
                shown_interval(c.interval, 3), f"{c.p_adjusted:.3f}", c.verdict,
            )  # fmt: skip
    return table


def _last(swept: Swept) -> str:
    done = sum(outcome.state == "done" for outcome in swept.outcomes)
    line = f"{done} of {len(swept.outcomes)} cells done: {swept.sweep.folder}"
    if swept.stopped_by:
        return f"stopped by {swept.stopped_by}; {line}"
    more = "" if done == len(swept.outcomes) else "; the same command tries the others again"
    return line + more
