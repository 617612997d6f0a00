"""Sweeps: every cell runs to the end, and each is compared with its baseline.

If a cell fails, its reason is recorded and the others continue. The same command continues a sweep:
finished questions and compiles are reused, and failed cells run again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ragbench.experiments.cells.cell import Cell, Outcome
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.cells.sweep_file import Sweep, missing_file
from ragbench.experiments.compare.contrasts import Contrast, compare_arms
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.summary import Evaluation
from ragbench.lms.calls import limit_reached
from ragbench.metrics import Method


@dataclass(frozen=True)
class SweepResult:
    """State of a sweep. `stopped_by` is the limit that ended it, or None."""

    sweep: Sweep
    outcomes: Sequence[Outcome]
    contrasts: Sequence[Contrast]
    stopped_by: str | None = None

    @property
    def exit_code(self) -> int:
        """0 if every cell is done, 1 if one is not, 3 if a limit ended the sweep."""
        if self.stopped_by:
            return 3
        return int(any(outcome.state != "done" for outcome in self.outcomes))


def available(sweep: Sweep) -> list[Cell]:
    """List the cells whose files exist, or all cells if none has all of its files."""
    return [cell for cell in sweep.cells if missing_file(cell) is None] or list(sweep.cells)


def missing_lines(sweep: Sweep) -> list[str]:
    """Name the files that are missing, and the number of cells that need them."""
    counts: Counter[Path] = Counter()
    runnable = available(sweep)
    for cell in sweep.cells:
        path = missing_file(cell)
        if cell not in runnable and path is not None:
            counts[path] += 1
    return [
        f"{n} cells are not run: {path} is missing; docs/data.md says where to get it"
        for path, n in counts.items()
    ]


def run_sweep(sweep: Sweep, watch: ProgressListener = SILENT) -> SweepResult:
    """Run or continue every cell, and compare them. Check all cells before the first request.

    Args:
        sweep: The sweep.
        watch: Listener of progress.
    """
    scheduler = Scheduler(sweep.folder, "sweep", watch, isolated=True)
    runnable = available(sweep)
    for _ in scheduler.check(runnable):
        pass
    for cell in sweep.cells:
        reason = "" if cell in runnable else f"{missing_file(cell)} is missing"
        scheduler.outcomes[cell.folder] = Outcome(cell, reason=reason)
    with scheduler.working():
        for number, cell in enumerate(sweep.cells, start=1):
            if cell in runnable:
                scheduler.run(cell, f"[{number}/{len(sweep.cells)}] {cell.label}")
        outcomes = list(scheduler.outcomes.values())
        swept = SweepResult(sweep, outcomes, _contrasts(sweep, outcomes), limit_reached())
        results = {"contrasts": list(map(asdict, swept.contrasts))}
        scheduler.write(results, swept.stopped_by)
        return swept


def arms_of(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Group the cells by arm. Cells of one arm differ only in seed and repeat."""
    arms: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.cell.arm, []).append(outcome)
    return arms


def _contrasts(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Contrast]:
    """Compare each arm with its baseline, or two cells of one arm."""
    by_label = {outcome.cell.label: outcome for outcome in outcomes}
    arms = {arm: _runs(of_arm) for arm, of_arm in arms_of(outcomes).items()}
    pairs: dict[tuple[str, str], None] = {}
    for label, baseline in sweep.pairs.items():
        cell = by_label[label]
        base = by_label[baseline]
        if cell.cell.arm == base.cell.arm:  # the baseline names a seed
            arms |= {label: _runs([cell]), baseline: _runs([base])}
            pairs[label, baseline] = None
        else:
            pairs[cell.cell.arm, base.cell.arm] = None
    return compare_arms(pairs, arms, sweep.metrics, Method(margin=sweep.margin))


def _runs(outcomes: Sequence[Outcome]) -> list[Evaluation] | str:
    """Return the runs of the cells, or the reason that there are none: one is not done."""
    runs = []
    for outcome in outcomes:
        if outcome.state != "done" or outcome.run is None:
            return f"{outcome.cell.label} is {outcome.state}"
        runs.append(outcome.run)
    return runs
