"""Runs the cells of a sweep one after another, and compares them from their records.

    cells/        a run folder per cell
    programs/     compiled programs, each shared by the cells that need the same
    sweep.json    the cells, what became of each, and the comparisons with their baselines

A cell that fails is noted with its reason, and the others go on. The same command continues a
sweep: finished questions and compiles are not asked again, cells that failed are tried again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from ragbench.errors import CompareError, ConfigError, RagbenchError, RunError, StoppedError
from ragbench.experiments.compare.against import compare_all
from ragbench.experiments.compile import compile_program
from ragbench.experiments.config import RunConfig
from ragbench.experiments.plans import Plan, make_plan
from ragbench.experiments.runs.context import RunContext, ready, same_retrieval
from ragbench.experiments.runs.runner import evaluate
from ragbench.experiments.runs.summary import HEADLINE, Evaluation
from ragbench.experiments.store import locked, write_json
from ragbench.experiments.sweep.spec import Cell, Sweep
from ragbench.experiments.watch import SILENT, Watch
from ragbench.lms.calls import Limits, limit_reached, spending
from ragbench.logs import get
from ragbench.metrics import Comparison, correct
from ragbench.redact import redact

SWEEP = "sweep.json"

_log = get(__name__)

State = Literal["done", "failed", "stopped", "not run"]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell. `run` is there where it has a run folder, finished or not."""

    cell: Cell
    state: State = "not run"
    reason: str = ""
    run: Evaluation | None = None


@dataclass(frozen=True)
class Contrast:
    """A cell, or all of an arm, against its baseline, by metric, Holm's over all of the sweep.

    Where the two cannot be compared, `why` says so and `scores` is empty.
    """

    cell: str
    baseline: str
    scores: Mapping[str, Comparison] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Swept:
    """A sweep as it stands; `stopped_by` is the limit that ended it, None where none did."""

    sweep: Sweep
    outcomes: Sequence[Outcome]
    contrasts: Sequence[Contrast]
    stopped_by: str | None = None

    @property
    def exit_code(self) -> int:
        """0 when every cell is done, 1 when one failed, 3 when a limit ended the sweep."""
        if self.stopped_by:
            return 3
        return int(any(outcome.state != "done" for outcome in self.outcomes))


class Cells:
    """Builds cells and runs them; data, indices and caches are shared by those of one data set.

    A compile that failed is remembered, so that cells that share one try it once.
    """

    def __init__(self, watch: Watch = SILENT) -> None:
        self._watch = watch
        self._contexts: list[RunContext] = []
        self._broken: dict[Path | None, str] = {}

    def build(self, cell: Cell) -> RunContext:
        """What the cell runs on; its program is not compiled yet where the cell compiles it."""
        config = cell.config
        if cell.settings:
            config = config.but(compiled=None)
        contexts = self._contexts
        if contexts and contexts[0].config.data_settings() != config.data_settings():
            contexts.clear()  # cells of one data set come together: let go of the last one's
        for same in contexts:
            if same_retrieval(same.config, config):
                return ready(config, like=same)
        contexts.append(ready(config, like=next(iter(contexts), None)))
        return contexts[-1]

    def run(self, cell: Cell, title: str) -> Outcome:
        """Runs the cell, compiles it first where it asks for that, and says what came of it."""
        outcome = self._outcome(cell, title)
        words = f" ({outcome.reason})" if outcome.reason else ""
        if outcome.run and not words:
            summary = outcome.run.summary
            means = (f"{name.upper()} {summary.scores.get(name, 0.0):.3f}" for name in HEADLINE)
            words = f", {summary.n} questions, {', '.join(means)}, {summary.failed} failed"
        self._watch.say(f"{title}: {outcome.state}{words}")
        return outcome

    def _outcome(self, cell: Cell, title: str) -> Outcome:
        try:
            with spending(Limits()):  # an LM that is down ends this block, and not the whole sweep
                run_context = self.build(cell)
                self._compile(cell, run_context)
                run = evaluate(cell.config, like=run_context, watch=self._watch, title=title)
        except StoppedError as stop:
            return Outcome(cell, "stopped", str(stop))
        except Exception as error:  # another cell's may be well
            if not isinstance(error, RagbenchError):
                _log.exception("cell %s", cell.label)
            return Outcome(cell, "failed", _reason(error))
        if run.stopped_by:
            return Outcome(cell, "stopped", run.stopped_by, run)
        if run.all_failed:
            return Outcome(cell, "failed", f"all {len(run.records)} questions failed", run)
        return Outcome(cell, "done", run=run)

    def _compile(self, cell: Cell, run_context: RunContext) -> None:
        if cell.settings is None:
            return
        if cell.program in self._broken:
            raise RunError(self._broken[cell.program])
        try:
            compile_program(
                _as_it_is(cell), cell.settings, like=run_context, watch=self._watch,
                on_message=lambda line: self._watch.say(f"  {line}"),
            )  # fmt: skip
        except StoppedError:
            raise
        except Exception as error:
            self._broken[cell.program] = f"its compile failed: {_reason(error)}"
            raise


def checked(
    sweep: Sweep, cells: Cells | None = None
) -> Iterator[tuple[Cell, RunContext, Plan | None]]:
    """Each cell, what it runs on, and its compile if it has one; no LM is asked."""
    cells = cells or Cells()
    for cell in sweep.cells:
        try:
            run_context = cells.build(cell)
            plan = None
            if cell.settings:
                plan = make_plan(_as_it_is(cell), cell.settings, like=run_context)
            yield cell, run_context, plan
        except RagbenchError as error:
            raise ConfigError(f"cell {cell.label}: {error}") from None


def run_sweep(sweep: Sweep, watch: Watch = SILENT) -> Swept:
    """Run every cell, or continue, and compare; nothing is asked before all cells are checked."""
    cells = Cells(watch)
    for _ in checked(sweep, cells):
        pass
    with locked(sweep.folder):
        outcomes = list(map(Outcome, sweep.cells))
        for number, cell in enumerate(sweep.cells):
            outcomes[number] = cells.run(cell, f"[{number + 1}/{len(sweep.cells)}] {cell.label}")
            _write(Swept(sweep, outcomes, ()))
        swept = Swept(sweep, outcomes, _contrasts(sweep, outcomes), limit_reached())
        _write(swept)
        return swept


def _as_it_is(cell: Cell) -> RunConfig:
    """The config of a cell's program before it is compiled, without the controls of its run."""
    return cell.config.but(compiled=None, form=False, votes=1)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return redact(text if isinstance(error, RagbenchError) else f"{type(error).__name__}: {text}")


def arms_of(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The cells of each arm, which differ in seed and repeat alone, by its label."""
    arms: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        arms.setdefault(outcome.cell.arm, []).append(outcome)
    return arms


def _contrasts(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Contrast]:
    by_label = {outcome.cell.label: outcome for outcome in outcomes}
    arms = arms_of(outcomes)
    sides: dict[tuple[str, str], tuple[list[Outcome], list[Outcome]]] = {}
    for pair in sweep.pairs.items():
        cell, base = (by_label[label] for label in pair)
        arm = cell.cell.arm
        base_arm = base.cell.arm
        if arm == base_arm:  # the baseline names a seed
            sides[pair] = ([cell], [base])
        else:
            sides[arm, base_arm] = (arms[arm], arms[base_arm])
    contrasts = []
    for labels, (cells, bases) in sides.items():
        scores: Mapping[str, Comparison] = {}
        why = ""
        try:
            runs = [_runs(bases), _runs(cells)]
            [result] = compare_all(runs, metrics=sweep.metrics, margin=sweep.margin)
            scores = result.scores
        except CompareError as error:
            why = str(error)
        contrasts.append(Contrast(*labels, scores, why))
    comparisons = chain.from_iterable(contrast.scores.values() for contrast in contrasts)
    family = iter(correct(list(comparisons)))
    corrected = []
    for contrast in contrasts:
        scores = {metric: next(family) for metric in contrast.scores}
        corrected.append(replace(contrast, scores=scores))
    return corrected


def _runs(outcomes: Sequence[Outcome]) -> list[Evaluation]:
    """The runs of the cells; CompareError where one of them is not done."""
    runs = []
    for outcome in outcomes:
        if outcome.state != "done" or outcome.run is None:
            raise CompareError(f"{outcome.cell.label} is {outcome.state}")
        runs.append(outcome.run)
    return runs


def _write(swept: Swept) -> None:
    cells = []
    for outcome in swept.outcomes:
        cells.append(
            {
                "cell": outcome.cell.label,
                "arm": outcome.cell.arm,
                "folder": outcome.cell.folder.name,
                "program": outcome.cell.program.name if outcome.cell.program else None,
                "state": outcome.state,
                "reason": outcome.reason,
                "summary": outcome.run.summary.to_dict() if outcome.run else None,
            }
        )
    contrasts = list(map(asdict, swept.contrasts))
    document = {"cells": cells, "contrasts": contrasts, "stopped_by": swept.stopped_by}
    write_json(swept.sweep.folder / SWEEP, document)
