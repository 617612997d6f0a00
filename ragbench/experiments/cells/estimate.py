"""Estimate of the cost that an experiment has left, for every kind of experiment."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ragbench.experiments.artifacts import SIDECAR
from ragbench.experiments.cells.cell import Cell
from ragbench.experiments.cells.scheduler import Contexts
from ragbench.experiments.estimates import (
    LEAST,
    Estimate,
    estimate_compile,
    estimate_run,
    in_all,
    question_cost,
    run_pilot,
)
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.store import StoredRecords, read_records


def estimate_cells(
    cells: Sequence[Cell],
    *,
    pilot: int | None = None,
    watch: ProgressListener = SILENT,
    draws: int = 0,
    notes: Sequence[str] = (),
) -> Iterator[str]:
    """Estimate the questions that cells have left, and their compiles, in lines to print.

    A cell with fewer than three finished questions is measured by those of an earlier cell that
    differs only in its form, its compile or its repeat. Only a pilot sends requests.

    Args:
        cells: The cells.
        pilot: Questions to run first in each cell that needs no compile and that no other measures.
        watch: Receiver of the pilot's progress.
        draws: Maximum number of further cells, each like the first one.
        notes: Notes below the total.

    Raises:
        ConfigError: A cell cannot run.
    """
    estimates: list[Estimate] = []
    programs: set[Path] = set()
    measured: dict[str, StoredRecords] = {}
    notes = list(notes)
    for number, (cell, run_context, plan) in enumerate(Contexts().check(cells), start=1):
        method = cell.config.but(form=False, compiled=None, repeat=1, out=None).name()
        if pilot and plan is None and method not in measured:
            run_pilot(run_context, pilot, watch)
        records = read_records(cell.folder)
        if len(records.finished) < LEAST:
            records = measured.get(method, records)
        else:
            measured.setdefault(method, records)
        cost = question_cost(run_context, records)
        of_cell = [estimate_run(run_context, cost=cost)]
        if draws:
            most = draws * len(run_context.examples)
            of_cell.append(
                cost.times(
                    0, most, f"{draws} trials, each like this one, or free if its cell is finished"
                )
            )
        if plan and plan.folder not in programs and not (plan.folder / SIDECAR).is_file():
            programs.add(plan.folder)
            of_cell.append(estimate_compile(plan, cost))
        if len(cells) > 1:
            yield f"[{number}/{len(cells)}] {cell.label}"
        for estimate in of_cell:
            yield from estimate.lines()
        estimates += of_cell
    if programs:
        notes.append("without the demonstrations that compiling may add to the prompts")
    compiles = f", and {len(programs)} compiles" if programs else ""
    if len(estimates) > 1:
        yield from in_all(f"in all, {len(cells)} cells{compiles}", estimates, notes).lines()
