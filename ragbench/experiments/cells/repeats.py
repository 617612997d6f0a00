"""Repeats of a run: one cell `r1`, `r2`, ... for each repeat, pooled by readers.

Its number decides the identity, the seeds and the cached replies of a repeat. The first one equals
the plain run and shares the cache with it. All repeats share the index.
"""

from collections.abc import Sequence

from ragbench.experiments.cells.cell import Cell
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.summary import Evaluation


def run_repeats(cells: Sequence[Cell], watch: ProgressListener = SILENT) -> list[Evaluation]:
    """Run or continue every repeat of a run. Stop after a repeat that reached a limit.

    Args:
        cells: Two repeats or more.
        watch: Listener of progress.
    """
    scheduler = Scheduler(cells[0].folder.parent, "repeats", watch)
    evaluations: list[Evaluation] = []
    with scheduler.working():
        for number, cell in enumerate(cells, start=1):
            outcome = scheduler.run(cell, f"repeat {number} of {len(cells)}")
            evaluations.append(outcome.run or outcome.finished())
            if evaluations[-1].stopped_by:
                break
        scheduler.write({}, evaluations[-1].stopped_by)
    return evaluations
