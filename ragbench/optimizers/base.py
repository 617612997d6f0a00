"""What every optimizer stands on: the contract, and the score of a program.

An optimizer here is one of DSPy's, with its defaults that mislead a RAG program mended: it sees
questions and answers alone, selects on the validation set, runs with an explicit seed and number
of workers, is not ended by one bad question, and writes to a log instead of the terminal.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import dspy
from dspy import AdapterParseError, LMError, LMInvalidRequestError
from pydantic import Field

from ragbench.context import current, use
from ragbench.data import for_optimizer
from ragbench.errors import ConfigError, RunError, UnknownNameError, needs_extra
from ragbench.knobs import Knobs, resolve
from ragbench.ledger import Side
from ragbench.optimizers.dspy_patches import logged_to
from ragbench.optimizers.students import LMDownError, finish, guarded, make_student
from ragbench.optimizers.task import NEVER, Budget, Needs, Scores, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.registry import Registry

PRESETS = ("light", "medium", "heavy")


class OptimizerKnobs(Knobs):
    """Knobs that every optimizer has."""

    demo_context_tokens: int = Field(
        400, ge=20, le=100_000, description="tokens of passages shown in one demonstration"
    )


class Optimizer(ABC):
    """A way to improve a program's prompts. Subclasses write `search` and `estimate`."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str] = ""
    #: The budget in words, as `estimate` computes it: T and V are training and validation
    #: questions, P the program's predictors; knobs go by their names.
    formula: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    Knobs: ClassVar[type[OptimizerKnobs]] = OptimizerKnobs
    #: Preset -> the defaults it changes; a given knob wins over both.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, preset: str = "light", **knobs: Any) -> None:
        if preset not in PRESETS:
            raise UnknownNameError("preset", preset, PRESETS)
        self.preset = preset
        defaults = self.presets.get(preset, {})
        self.knobs: Any = resolve(self.Knobs, f"optimizer {self.name}", knobs, defaults)

    @abstractmethod
    def estimate(self, size: Size) -> Budget:
        """What `compile` will spend at `size`, the final validation not included."""

    @abstractmethod
    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The best program found, starting from `student`, and what else was tried.

        DSPy's settings hold the number of workers and let no number of errors end it.
        """

    @classmethod  # noqa: B027
    def attach(cls, program: RAGProgram, folder: Path) -> None:
        """Give a loaded `program` what the optimizer kept beside its state; by default nothing."""

    def check(self, size: Size) -> None:
        """Raise ConfigError for too few questions, MissingExtraError without the package."""
        if self.needs.package:
            with needs_extra(f"the optimizer {self.name}"):
                import_module(self.needs.package)
        if self.needs.trainset and size.n_train < 1:
            raise ConfigError(f"optimizer {self.name} needs training questions; there are none")
        if size.n_val < 1:
            raise ConfigError(f"optimizer {self.name} needs validation questions; there are none")

    def compile(self, program: RAGProgram, task: Task) -> SearchResult:
        """The compiled program, plain and ready to save, and all candidates, best first.

        `program` is left as it was. What DSPy prints and logs is in `optimizer.log` of the task's
        folder.

        Raises:
            RunError: the LM is down, or the prompt model's replies cannot be used.
            ConfigError: there are too few questions.
        """
        self.check(Size(len(program.predictors()), len(task.train), len(task.val)))
        student = make_student(program, demo_tokens=self.knobs.demo_context_tokens)
        with _working_on(task):
            try:
                result = self.search(student, task)
            except (LMInvalidRequestError, AdapterParseError) as error:
                raise RunError(
                    f"optimizer {self.name} got a reply it cannot use ({type(error).__name__}: "
                    f"{_one_line(error)}); give a stronger --prompt-lm, or fewer candidates by "
                    "--opt-set"
                ) from error
        ranked = sorted(result.candidates, key=lambda candidate: -(candidate.score or 0.0))
        candidates = [replace(one, program=finish(one.program)) for one in ranked]
        return replace(result, program=finish(result.program), candidates=candidates)


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer", package="ragbench.optimizers")


def measure(program: dspy.Module, examples: Sequence[dspy.Example], task: Task) -> Scores:
    """The task's scorer over `examples`; a run that raises scores 0 and is counted.

    Raises:
        RunError: the LM is down.
    """
    devset = for_optimizer(examples)
    evaluate = dspy.Evaluate(devset=devset, metric=task.metric, display_progress=False)
    with _working_on(task), dspy.context(trace=None):
        rows = evaluate(guarded(program)).results
    failed = sum(not prediction.keys() for _, prediction, _ in rows)
    return Scores(tuple(float(score) for *_, score in rows), failed)


@contextmanager
def _working_on(task: Task) -> Iterator[None]:
    """The settings of `task`; inside the block, an LM that is down is one line."""
    context = current().plus(current().get(Side) or Side("student"))
    settings = {"lm": task.seeded(task.lm), "num_threads": task.workers, "max_errors": NEVER}
    with logged_to(task.log_folder / "optimizer.log"), use(context, **settings):
        try:
            yield
        except (LMDownError, LMError) as error:  # the latter of a prompt model
            raise RunError(
                f"the LM takes no more calls ({_one_line(error)}); when it does, give the same "
                "command again: finished calls are kept"
            ) from (error if isinstance(error, LMError) else None)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
