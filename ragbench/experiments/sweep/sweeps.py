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


class Benches:
    """Builds what cells need; data, indices and caches are shared by all cells of one data set."""

    def __init__(self) -> None:
        self._kept: list[RunContext] = []

    def build(self, cell: Cell) -> RunContext:
        """What the cell runs on; its program is not compiled yet where the cell compiles it."""
        if cell.settings:
            config = cell.config.but(compiled=None)
        else:
            config = cell.config
        if self._kept and self._kept[0].config.data_settings() != config.data_settings():
            self._kept.clear()  # cells of one data set come together: let go of the last one's
        same = next((b for b in self._kept if same_retrieval(b.config, config)), None)
        run_context = ready(config, like=same or next(iter(self._kept), None))
        if same is None:
            self._kept.append(run_context)
        return run_context


def checked(
    sweep: Sweep, benches: Benches | None = None
) -> Iterator[tuple[Cell, RunContext, Plan | None]]:
    """Each cell, what it runs on, and its compile if it has one; no LM is asked."""
    benches = benches or Benches()
    for cell in sweep.cells:
        try:
            run_context = benches.build(cell)
            settings = cell.settings
            if settings:
                plan = make_plan(_as_it_is(cell), settings, like=run_context)
            else:
                plan = None
            yield cell, run_context, plan
        except RagbenchError as error:
            raise ConfigError(f"cell {cell.label}: {error}") from None


def run_sweep(sweep: Sweep, watch: Watch = SILENT) -> Swept:
    """Run every cell, or continue, and compare; nothing is asked before all cells are checked."""
    benches = Benches()
    for _ in checked(sweep, benches):
        pass
    with locked(sweep.folder):
        outcomes = list(map(Outcome, sweep.cells))
        runner = _Runner(watch, benches)
        for number, cell in enumerate(sweep.cells):
            outcomes[number] = runner.run(cell, f"[{number + 1}/{len(sweep.cells)}] {cell.label}")
            _write(Swept(sweep, outcomes, ()))
        swept = Swept(sweep, outcomes, _contrasts(sweep, outcomes), limit_reached())
        _write(swept)
        return swept


@dataclass
class _Runner:
    """Runs cells; remembers the compiles that failed, so that cells that share one try it once."""

    watch: Watch
    benches: Benches
    broken: dict[Path | None, str] = field(default_factory=dict)

    def run(self, cell: Cell, title: str) -> Outcome:
        outcome = self._outcome(cell, title)
        words = f" ({outcome.reason})" if outcome.reason else ""
        if outcome.run and not words:
            summary = outcome.run.summary
            means = (f"{name.upper()} {summary.scores.get(name, 0.0):.3f}" for name in HEADLINE)
            words = f", {summary.n} questions, {', '.join(means)}, {summary.failed} failed"
        self.watch.say(f"{title}: {outcome.state}{words}")
        return outcome

    def _outcome(self, cell: Cell, title: str) -> Outcome:
        try:
            with spending(Limits()):  # an LM that is down ends this block, and not the whole sweep
                run_context = self.benches.build(cell)
                self._compile(cell, run_context)
                run = evaluate(cell.config, like=run_context, watch=self.watch, title=title)
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
        if cell.program in self.broken:
            raise RunError(self.broken[cell.program])
        try:
            compile_program(
                _as_it_is(cell), cell.settings, like=run_context, watch=self.watch,
                on_message=lambda line: self.watch.say(f"  {line}"),
            )  # fmt: skip
        except StoppedError:
            raise
        except Exception as error:
            self.broken[cell.program] = f"its compile failed: {_reason(error)}"
            raise


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
    for label, base_label in sweep.pairs.items():
        cell = by_label[label]
        base = by_label[base_label]
        names = (cell.cell.arm, base.cell.arm)
        if names[0] == names[1]:  # the baseline names a seed
            sides[label, base_label] = ([cell], [base])
        else:
            sides[names] = (arms[names[0]], arms[names[1]])
    contrasts = []
    for (name, base_name), (cells, bases) in sides.items():
        scores: Mapping[str, Comparison] = {}
        why = _why_not(bases) or _why_not(cells)
        if not why:
            try:
                runs = [_runs(bases), _runs(cells)]
                [result] = compare_all(runs, metrics=sweep.metrics, margin=sweep.margin)
                scores = result.scores
            except CompareError as error:
                why = str(error)
        contrasts.append(Contrast(name, base_name, scores, why))
    comparisons = chain.from_iterable(contrast.scores.values() for contrast in contrasts)
    family = iter(correct(list(comparisons)))
    corrected = []
    for contrast in contrasts:
        scores = {metric: next(family) for metric in contrast.scores}
        corrected.append(replace(contrast, scores=scores))
    return corrected


def _why_not(outcomes: Sequence[Outcome]) -> str:
    """Why the cells cannot be compared: the first that is not done; empty where all are."""
    for outcome in outcomes:
        if outcome.state != "done":
            return f"{outcome.cell.label} is {outcome.state}"
    return ""


def _runs(outcomes: Sequence[Outcome]) -> list[Evaluation]:
    runs = []
    for outcome in outcomes:
        if outcome.run is not None:
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
    contrasts = []
    for c in swept.contrasts:
        contrasts.append(
            {**asdict(c), "scores": {metric: asdict(s) for metric, s in c.scores.items()}}
        )
    document = {"cells": cells, "contrasts": contrasts, "stopped_by": swept.stopped_by}
    write_json(swept.sweep.folder / SWEEP, document)
