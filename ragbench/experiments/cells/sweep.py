"""Sweeps: every cell runs to the end, and each is compared with its baseline.

If a cell fails, its reason is recorded and the others continue. The same command continues a sweep:
finished questions and compiles are reused, and failed cells run again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ragbench.errors import CompareError
from ragbench.experiments.cells.cell import Cell, Outcome, write_experiment
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.cells.sweep_file import Sweep, missing_file
from ragbench.experiments.compare.paired import Shared
from ragbench.experiments.plans import Plan
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import locked
from ragbench.lms.calls import limit_reached
from ragbench.metrics import Comparison, Method, correct


@dataclass(frozen=True)
class Contrast:
    """Comparison of a cell, or of a whole arm, with its baseline, by metric.

    P-values are corrected by Holm's method over the sweep. If the two cannot be compared, `why` has
    the reason and `scores` is empty.
    """

    cell: str
    baseline: str
    scores: Mapping[str, Comparison] = field(default_factory=dict)
    why: str = ""


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


def check_sweep(sweep: Sweep) -> Iterator[tuple[Cell, RunContext, Plan | None]]:
    """Yield each cell, its run context and the plan of its compile. Sends no request."""
    return Scheduler().check(available(sweep))


def run_sweep(sweep: Sweep, watch: ProgressListener = SILENT) -> SweepResult:
    """Run or continue every cell, and compare them. Check all cells before the first request.

    Args:
        sweep: The sweep.
        watch: Listener of progress.
    """
    scheduler = Scheduler(watch, isolated=True)
    runnable = available(sweep)
    for _ in scheduler.check(runnable):
        pass
    with locked(sweep.folder):
        outcomes = list(map(Outcome, sweep.cells))
        for number, cell in enumerate(sweep.cells):
            if cell not in runnable:
                reason = f"{missing_file(cell)} is missing"
                outcomes[number] = Outcome(cell, reason=reason)
                continue
            title = f"[{number + 1}/{len(sweep.cells)}] {cell.label}"
            outcomes[number] = scheduler.run(cell, title)
            write_experiment(sweep.folder, "sweep", outcomes, {})
        swept = SweepResult(sweep, outcomes, _contrasts(sweep, outcomes), limit_reached())
        results = {"contrasts": list(map(asdict, swept.contrasts))}
        write_experiment(sweep.folder, "sweep", outcomes, results, swept.stopped_by)
        return swept


def arms_of(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Group the cells by arm. Cells of one arm differ only in seed and repeat."""
    arms: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.cell.arm, []).append(outcome)
    return arms


def _contrasts(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Contrast]:
    """Compare each arm with its baseline; all tests are one family (Holm)."""
    by_label = {outcome.cell.label: outcome for outcome in outcomes}
    arms = arms_of(outcomes)
    sides: dict[tuple[str, str], tuple[list[Outcome], list[Outcome]]] = {}
    for pair in sweep.pairs.items():
        cell, base = (by_label[label] for label in pair)
        names = cell.cell.arm, base.cell.arm
        if names[0] == names[1]:  # the baseline names a seed
            sides[pair] = ([cell], [base])
        else:
            sides[names] = (arms[names[0]], arms[names[1]])
    method = Method(margin=sweep.margin)
    contrasts = []
    tests: list[Comparison] = []
    for labels, (cells, bases) in sides.items():
        try:
            a = _runs(bases)
            b = _runs(cells)
            shared = Shared.by([*a, *b], common=False)
            scores = {metric: shared.compare(a, b, metric, method) for metric in sweep.metrics}
            contrasts.append(Contrast(*labels, scores))
            tests += scores.values()
        except CompareError as error:
            contrasts.append(Contrast(*labels, why=str(error)))
    corrected = iter(correct(tests))
    family = []
    for contrast in contrasts:
        scores = {metric: next(corrected) for metric in contrast.scores}
        family.append(replace(contrast, scores=scores))
    return family


def _runs(outcomes: Sequence[Outcome]) -> list[Evaluation]:
    """Return the runs of the cells. Raises CompareError if one is not done."""
    runs = []
    for outcome in outcomes:
        if outcome.state != "done" or outcome.run is None:
            raise CompareError(f"{outcome.cell.label} is {outcome.state}")
        runs.append(outcome.run)
    return runs
