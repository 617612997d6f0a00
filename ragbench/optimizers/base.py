"""What every optimizer stands on: the contract, and the score of a program.

An optimizer here is one of DSPy's, with its defaults that mislead a RAG program mended: it sees
questions and answers alone, selects on the validation set, runs with an explicit seed and number
of workers, is not ended by one bad question, and writes to a log instead of the terminal.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar

import dspy
from dspy import AdapterParseError, LMError, LMInvalidRequestError
from pydantic import Field

from ragbench.context import current, use
from ragbench.data import for_optimizer
from ragbench.errors import ConfigError, RunError, UnknownNameError, needs_extra
from ragbench.knobs import Knobs, resolve
from ragbench.ledger import Side
from ragbench.lms.unmetered import unmetered_reason
from ragbench.optimizers.arguments import Arguments, knobs_of, passed_to, shown
from ragbench.optimizers.dspy_patches import logged_to
from ragbench.optimizers.students import (
    EndlessError,
    LMDownError,
    UnmeteredError,
    finish,
    guarded,
    make_student,
)
from ragbench.optimizers.tally import Tally
from ragbench.optimizers.task import (
    NEVER,
    Budget,
    Candidate,
    Needs,
    Scores,
    SearchResult,
    Size,
    Task,
)
from ragbench.optimizers.writing import make_writer, writing
from ragbench.programs.core import RAGProgram
from ragbench.registry import Registry
from ragbench.user_code import digests_within

PRESETS = ("light", "medium", "heavy")
#: Between the steps of a chain.
ARROW = "->"


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
    #: What it is shown, and what it changes, for the table in docs/compiling.md.
    sees: ClassVar[str] = ""
    changes: ClassVar[str] = ""
    #: The budget in words, as `estimate` computes it: T and V are training and validation
    #: questions, P the program's predictors; knobs go by their names.
    formula: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    Knobs: ClassVar[type[OptimizerKnobs]] = OptimizerKnobs
    #: Preset -> the defaults it changes; a given knob wins over both.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: DSPy's name of an argument -> the knob that it is.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: DSPy's optimizer, whose further arguments are knobs; none are where it is None.
    dspy_class: ClassVar[type[Any] | None] = None
    #: Whether it ships what it made at a tie on validation; else the plain program is kept.
    keeps_ties: ClassVar[bool] = False
    #: Runs of a program that one run of what it makes is.
    runs_each: int = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dspy_class = cls.__dict__.get("dspy_class")
        if dspy_class is not None:
            functions = (dspy_class.__init__, dspy_class.compile)
            cls.Knobs = knobs_of(cls.Knobs, functions, without={*cls.renamed, "auto"})

    def __init__(self, preset: str = "light", **knobs: Any) -> None:
        if preset not in PRESETS:
            raise UnknownNameError("preset", preset, PRESETS)
        self.preset = preset
        defaults = self.presets.get(preset, {})
        own: Arguments = {}
        for name, value in knobs.items():
            knob = self.renamed.get(name, name)
            if knob in own:
                raise ConfigError(f"optimizer {self.name}: {name} is {knob}; give one of them")
            own[knob] = value
        self.knobs: Any = resolve(self.Knobs, f"optimizer {self.name}", own, defaults)

    @abstractmethod
    def estimate(self, size: Size) -> Budget | None:
        """What `compile` will spend at `size`, the final validation not included.

        None where no formula says it.
        """

    @abstractmethod
    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The best program found, starting from `student`.

        DSPy's settings hold the number of workers and let no number of errors end it.
        """

    @classmethod  # noqa: B027
    def use(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Give `program` what is kept beside its state, from JSON files by name; here nothing."""

    @classmethod
    def attach(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Give `program` what `files` hold.

        Raises:
            RunError: they are not those of this optimizer.
        """
        try:
            cls.use(program, files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            names = ", ".join(files) or "its files"
            reason = f"{type(error).__name__}: {error}"
            raise RunError(f"cannot use {names} ({reason}); compile again") from None

    def arguments(self, function: Callable[..., Any] | None = None) -> Arguments:
        """The knobs by the names of DSPy's arguments, with those given that `function` takes."""
        named = {argument: getattr(self.knobs, knob) for argument, knob in self.renamed.items()}
        return named if function is None else named | passed_to(function, self.knobs)

    @property
    def identity(self) -> Arguments:
        """What decides the result, JSON-ready: name, preset, knobs and the code that these name."""
        knobs = shown(self.knobs)
        identity: Arguments = {"name": self.name, "preset": self.preset, "knobs": knobs}
        if sources := digests_within(knobs):
            identity["setting_sources"] = sources
        return identity

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
        self.check(task.size(program))
        tally = Tally(for_optimizer(task.val), task.on_run)
        tokens = self.knobs.demo_context_tokens
        student = make_student(program, demo_tokens=tokens, tally=tally)
        writer = make_writer(task.seeded(task.writer))
        task = replace(task, prompt_lm=writer, tally=tally)
        adapter = writing(dspy.settings.adapter or dspy.ChatAdapter())
        with _working_on(task), dspy.context(adapter=adapter):
            try:
                result = self.search(student, task)
            except (LMInvalidRequestError, AdapterParseError) as error:
                raise RunError(
                    f"optimizer {self.name} got a reply it cannot use ({type(error).__name__}: "
                    f"{_one_line(error)}); give a stronger --prompt-lm"
                ) from error
        finished = finish(result.program)
        self.attach(finished, result.files)
        candidates = []
        for order, tried in enumerate(tally.tried.values(), 1):
            scores = list(map(tried.scores.get, tally.order))
            program = finish(tried.program)
            candidates.append(Candidate(program, scores, tried.calls, tried.tokens, order))
        candidates.sort(key=lambda candidate: (-candidate.is_whole, -candidate.score))
        left_out = getattr(writer, "left_out", [])
        return replace(result, program=finished, candidates=candidates, left_out=left_out)


class Optimizers(Registry[type[Optimizer]]):
    """Optimizers by name: registered ones, `FILE.py:Class`, and chains such as `A -> B`.

    What is registered, or named, may be a class of DSPy's `Teleprompter`.
    """

    #: Makes a chain of its name; set by `chain`.
    chain_of: Callable[[str], type[Optimizer]]
    #: Makes an optimizer of a class or an object, and its name; set by `external`.
    adapt: Callable[[Any, str], type[Optimizer]]

    def get(self, name: str) -> type[Optimizer]:
        """The optimizer called `name`.

        Raises:
            UnknownNameError: there is none; the message has the near names.
            ConfigError: what the name says is no optimizer.
        """
        self._load()
        if ARROW in name:
            return self.chain_of(name)
        return self.adapt(super().get(name), name)

    def __iter__(self) -> Iterator[tuple[str, type[Optimizer]]]:
        for name in self.names():
            yield name, self.get(name)


OPTIMIZERS = Optimizers(
    "optimizer",
    package="ragbench.optimizers",
)


def measure(program: dspy.Module, examples: Sequence[dspy.Example], task: Task) -> Scores:
    """The task's scorer over `examples`; a run that raises scores 0 and is counted.

    Raises:
        RunError: the LM is down.
    """
    devset = for_optimizer(examples)
    if not devset:
        return Scores((), 0)
    evaluate = dspy.Evaluate(devset=devset, metric=task.metric, display_progress=False)
    with _working_on(task), dspy.context(trace=None):
        rows = evaluate(guarded(program)).results
        if reason := unmetered_reason():
            raise ConfigError(reason)
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
        except UnmeteredError as error:
            raise ConfigError(str(error)) from None
        except EndlessError as error:
            raise RunError(_one_line(error)) from None
        except (LMDownError, LMError) as error:  # the latter of a prompt model
            raise RunError(
                f"the LM takes no more calls ({_one_line(error)}); when it does, give the same "
                "command again: finished calls are kept"
            ) from (error if isinstance(error, LMError) else None)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
