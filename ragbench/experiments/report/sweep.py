"""A sweep as people read it: a row per cell, and each cell against its baseline."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ragbench.experiments.artifacts import SIDECAR
from ragbench.experiments.compile import estimate_compile
from ragbench.experiments.estimates import Estimate, estimate_run, in_all
from ragbench.experiments.report.comparison import COMPARED, FOR_MACHINES, compared
from ragbench.experiments.report.table import Column, Table, for_machines, print_table, say
from ragbench.experiments.report.tables import LEGEND, failure_table, run_table, title_of
from ragbench.experiments.sweep import Contrast, Sweep, Swept, checked


def print_swept(swept: Swept) -> None:
    """Print the cells, what the tables do not show of them, and the comparisons."""
    ran = {o.cell.label: o.run for o in swept.outcomes if o.run and o.run.records}
    if ran:
        titles = zip(*(title_of(run).split(", ") for run in ran.values()), strict=False)
        say(", ".join(part[0] for part in titles if len(set(part)) == 1))
        print_table(replace(run_table(list(ran.values()), list(ran)), name="cells"))
        say(LEGEND)
    for outcome in swept.outcomes:
        if outcome.state != "done":
            why = f": {outcome.reason}" if outcome.reason else ""
            say(f"{outcome.cell.label}: {outcome.state}{why}")
        if outcome.run and outcome.run.summary.failed:
            say(outcome.cell.label)
            print_table(failure_table(outcome.run.records))
    if any(contrast.scores for contrast in swept.contrasts):
        print_table(_contrasts(swept.contrasts))
    for contrast in swept.contrasts:
        if contrast.why:
            say(f"{contrast.cell}: not compared with {contrast.baseline}: {contrast.why}")
    done = sum(outcome.state == "done" for outcome in swept.outcomes)
    line = f"{done} of {len(swept.outcomes)} cells done: {swept.sweep.folder}"
    if swept.stopped_by:
        say(f"stopped by {swept.stopped_by}; {line}")
    else:
        more = "" if done == len(swept.outcomes) else "; the same command tries the others again"
        say(line + more)


def print_estimate(sweep: Sweep) -> None:
    """Print each cell with what it would spend, for the questions that it has not answered yet."""
    runs = list[Estimate]()
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
        say(f"[{number}/{len(sweep.cells)}] {cell.label}")
        for line in lines:
            say(f"  {line}")
    extra = f", and {len(compiles)} compiles" if compiles else ""
    for line in in_all(f"in all, {len(runs)} cells{extra}", [*runs, *compiles]).lines():
        say(line)


def _contrasts(contrasts: Sequence[Contrast]) -> Table:
    rows = [
        {"cell": contrast.cell, "baseline": contrast.baseline, "metric": metric, **compared(c)}
        for contrast in contrasts
        for metric, c in contrast.scores.items()
    ]
    verdicts = FOR_MACHINES if for_machines() else FOR_MACHINES[:1]
    first = (Column("cell"), Column("baseline", "against", drop=1), Column("metric"))
    return Table("contrasts", (*first, *COMPARED, *verdicts), rows)
