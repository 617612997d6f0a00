"""Runs the cells of an experiment: compile, run, note the state; data and index are shared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dspy

from ragbench.errors import ConfigError, LimitsError, RagbenchError, RunError, StoppedError
from ragbench.experiments.cells.cell import Cell, Kind, Outcome, write_experiment
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.context import RunContext, ready, same_retrieval
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import HEADLINE
from ragbench.experiments.store import locked
from ragbench.lms.calls import Limits, spending
from ragbench.logs import get
from ragbench.redact import redact

if TYPE_CHECKING:
    from ragbench.experiments.plans import Plan

_log = get(__name__)


class Contexts:
    """Builds the run contexts of cells. Cells of one data set share data, indexes and caches."""

    def __init__(self) -> None:
        self._contexts: list[RunContext] = []

    def build(self, cell: Cell) -> RunContext:
        """Load the data, retriever and program of a cell, without compiling the program."""
        config = cell.config
        if cell.settings:
            config = config.but(compiled=None)
        contexts = self._contexts
        if contexts and contexts[0].config.data_settings() != config.data_settings():
            contexts.clear()  # Free the last data set: cells are grouped by data set.
        for same in contexts:
            if same_retrieval(same.config, config):
                return ready(config, like=same)
        contexts.append(ready(config, like=next(iter(contexts), None)))
        return contexts[-1]

    def check(self, cells: Iterable[Cell]) -> Iterator[tuple[Cell, RunContext, Plan | None]]:
        """Yield each cell, its run context and the plan of its compile. Sends no request.

        Raises:
            ConfigError: A cell cannot run. The message names it.
        """
        for cell in cells:
            try:
                run_context = self.build(cell)
                plan = None
                if cell.settings:
                    from ragbench.experiments.plans import make_plan  # imports the optimizers

                    plan = make_plan(cell.uncompiled, cell.settings, like=run_context)
                yield cell, run_context, plan
            except RagbenchError as error:
                if not cell.label:
                    raise
                raise ConfigError(f"cell {cell.label}: {error}") from None


class Scheduler(Contexts):
    """Runs cells and writes `experiment.json`, at most once a second while they run.

    Cells that share a compile try it once.
    """

    def __init__(
        self,
        folder: Path,
        kind: Kind,
        watch: ProgressListener = SILENT,
        *,
        isolated: bool = False,
        on_message: Callable[[str], None] | None = None,
    ) -> None:
        """Set up.

        Args:
            folder: Folder of the experiment.
            kind: Command that makes it.
            watch: The receiver of progress.
            isolated: An LM that is down ends the cell only, not the experiment.
            on_message: The receiver of the lines of compiles. None takes `watch`.
        """
        super().__init__()
        self.folder = folder
        self.outcomes: dict[Path, Outcome] = {}
        self._kind = kind
        self._watch = watch
        self._isolated = isolated
        self._on_message = on_message or (lambda line: watch.say(f"  {line}"))
        self._unwritten = False
        self._written_at = -math.inf
        self._compiled: dict[Path | None, Exception | None] = {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Lock the folder of the experiment, and write its cells at the end, also by an error."""
        with locked(self.folder):
            try:
                yield
            finally:
                if self._unwritten:
                    self.write({})

    def write(self, results: Mapping[str, Any], stopped_by: str | None = None) -> None:
        """Write `experiment.json`.

        Args:
            results: Results as JSON, computed from the records. Empty if they are not final.
            stopped_by: Limit that ended the experiment.
        """
        outcomes = self.outcomes.values()
        write_experiment(self.folder, self._kind, outcomes, results, stopped_by)
        self._unwritten = False
        self._written_at = time.monotonic()

    def run(
        self, cell: Cell, title: str, questions: Sequence[dspy.Example] | None = None
    ) -> Outcome:
        """Run or continue a cell, after its compile if it has one.

        Args:
            cell: The cell.
            title: Title of its progress.
            questions: Questions to answer. None takes those of its config.

        Returns:
            Its state; an error is in it, not raised.
        """
        outcome = self.outcomes[cell.folder] = self._outcome(cell, title, questions)
        self._unwritten = True
        if time.monotonic() - self._written_at > 1:
            self.write({})
        words = f" ({outcome.reason})" if outcome.reason else ""
        if outcome.run and not words:
            summary = outcome.run.summary
            means = (f"{name.upper()} {summary.scores.get(name, 0.0):.3f}" for name in HEADLINE)
            words = f", {summary.n} questions, {', '.join(means)}, {summary.failed} failed"
        self._watch.say(f"{title}: {outcome.state}{words}")
        return outcome

    def _outcome(self, cell: Cell, title: str, questions: Sequence[dspy.Example] | None) -> Outcome:
        try:
            with ExitStack() as stack:
                if self._isolated:
                    stack.enter_context(spending(Limits()))
                run_context = self.build(cell)
                if cell.settings is not None:
                    self._compile(cell, run_context)
                    run_context = ready(cell.config, like=run_context)
                if questions is not None:
                    run_context = replace(run_context, examples=questions)
                evaluation = run(run_context, watch=self._watch, title=title)
        except StoppedError as error:
            return Outcome(cell, "stopped", str(error), error=error)
        except LimitsError:  # No cell can keep the limit.
            raise
        except Exception as error:  # Another cell may succeed.
            if not isinstance(error, RagbenchError):
                _log.exception("cell %s", cell.label)
            return Outcome(cell, "failed", _reason(error), error=error)
        if evaluation.stopped_by:
            words = f"{evaluation.stopped_by} in {cell.label}, {evaluation.progress.words()}"
            stop = StoppedError(words)
            return Outcome(cell, "stopped", evaluation.stopped_by, evaluation, stop)
        if evaluation.progress.cut_off:  # The LM refused them without a usable reason.
            words = evaluation.progress.words()
            cut = RunError(f"{cell.label}: {words}; the same command asks the others again")
            return Outcome(cell, "failed", words, evaluation, cut)
        if evaluation.all_failed:
            reason = f"all {len(evaluation.records)} questions failed"
            return Outcome(cell, "failed", reason, evaluation)
        return Outcome(cell, "done", run=evaluation)

    def _compile(self, cell: Cell, run_context: RunContext) -> None:
        from ragbench.experiments.compile import compile_program

        assert cell.settings is not None
        if cell.program in self._compiled:
            if error := self._compiled[cell.program]:
                raise RunError(f"its compile failed: {_reason(error)}")
            return
        try:
            compile_program(
                cell.uncompiled,
                cell.settings,
                like=run_context,
                watch=self._watch,
                on_message=self._on_message,
            )
            self._compiled[cell.program] = None
        except StoppedError:
            raise
        except Exception as error:
            self._compiled[cell.program] = error
            raise


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return redact(text if isinstance(error, RagbenchError) else f"{type(error).__name__}: {text}")
