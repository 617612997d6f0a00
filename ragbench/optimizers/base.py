"""Contract of the optimizers, and the measurement of a program.

An optimizer wraps one of DSPy's and changes defaults that mislead a RAG program. It sees only
questions and answers, selects on the validation set, runs with an explicit seed and number of
workers, continues after a failed question, and logs to a file instead of the terminal.
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
from ragbench.errors import ConfigError, LimitsError, RunError, UnknownNameError, needs_extra
from ragbench.knobs import Knobs, resolve
from ragbench.ledger import CompilePhase
from ragbench.lms.calls import unmetered_reason
from ragbench.optimizers.arguments import Arguments, knobs_of, passed_to, shown
from ragbench.optimizers.candidate_log import CandidateLog
from ragbench.optimizers.dspy_patches import logged_to
from ragbench.optimizers.students import (
    CallLimitExceededError,
    LMDownError,
    UnmeteredError,
    finish,
    guarded,
    make_student,
)
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
#: Separator of the steps of a chain.
ARROW = "->"


class OptimizerKnobs(Knobs):
    """Parameters of every optimizer."""

    demo_context_tokens: int = Field(
        400, ge=20, le=100_000, description="tokens of passages in one demonstration"
    )


class Optimizer(ABC):
    """A method that improves a program's prompts. Subclasses define `search` and `estimate`."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str] = ""
    #: Its inputs and the parts that it changes, for the table in docs/compiling.md.
    sees: ClassVar[str] = ""
    changes: ClassVar[str] = ""
    #: The budget of `estimate` in words. T and V are the numbers of training and validation
    #: questions, P the number of predictors, and other names are parameters.
    formula: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    Knobs: ClassVar[type[OptimizerKnobs]] = OptimizerKnobs
    #: Preset -> the defaults that it changes. A parameter of the user has priority.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: DSPy's name of an argument -> name of the parameter.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: DSPy's optimizer, whose other arguments become parameters. None: no others.
    dspy_class: ClassVar[type[Any] | None] = None
    #: True: use its program if validation is tied. False: use the uncompiled program.
    keeps_ties: ClassVar[bool] = False
    #: Number of program runs in one run of the compiled program.
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
        """Return the cost of `compile` at `size`, without the final validation.

        None if no formula is known.
        """

    @abstractmethod
    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """Search for the best program and return it.

        DSPy's settings contain the number of workers and allow any number of errors.

        Args:
            student: The program to start from. May be changed.
            task: Questions, metric and LMs.
        """

    @classmethod  # noqa: B027
    def use(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Apply the files of a compile to `program`. By default there are none.

        Args:
            program: The program. Changed in place.
            files: JSON files stored next to the state, by name.
        """

    @classmethod
    def attach(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Apply `files` to `program`.

        Args:
            program: The program. Changed in place.
            files: JSON files stored next to the state, by name.

        Raises:
            RunError: The files are not from this optimizer.
        """
        try:
            cls.use(program, files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            file_names = ", ".join(files) or "its files"
            reason = f"{type(error).__name__}: {error}"
            raise RunError(f"cannot use {file_names} ({reason}); compile again") from None

    def arguments(self, function: Callable[..., Any] | None = None) -> Arguments:
        """Return the parameters under DSPy's argument names.

        With `function`, includes the arguments of `function` that the user set.
        """
        named = {argument: getattr(self.knobs, knob) for argument, knob in self.renamed.items()}
        return named if function is None else named | passed_to(function, self.knobs)

    @property
    def identity(self) -> Arguments:
        """Values that determine the result, as JSON values.

        These are name, preset, parameters, and a hash of the code that the parameters name.
        """
        knobs = shown(self.knobs)
        identity: Arguments = {"name": self.name, "preset": self.preset, "knobs": knobs}
        if sources := digests_within(knobs):
            identity["setting_sources"] = sources
        return identity

    def check(self, size: Size) -> None:
        """Check that the optimizer's package is installed and that there are enough questions.

        Args:
            size: Number of predictors, training questions and validation questions.

        Raises:
            ConfigError: There are too few questions.
            MissingExtraError: A package is missing.
        """
        if self.needs.package:
            with needs_extra(f"the optimizer {self.name}"):
                import_module(self.needs.package)
        if self.needs.trainset and size.n_train < 1:
            raise ConfigError(f"optimizer {self.name} needs training questions; there are none")
        if size.n_val < 1:
            raise ConfigError(f"optimizer {self.name} needs validation questions; there are none")

    def compile(self, program: RAGProgram, task: Task) -> SearchResult:
        """Compile `program` and return the result, with all candidates, best first.

        The returned programs are plain and ready to save. DSPy's output and logs go to
        `optimizer.log` in
        the task's folder.

        Args:
            program: The program. Not changed.
            task: Questions, metric and LMs.

        Raises:
            RunError: The LM is down, or the prompt model's replies are unusable.
            ConfigError: There are too few questions.
        """
        self.check(task.size(program))
        tally = CandidateLog(for_optimizer(task.val), task.on_run)
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
                    f"optimizer {self.name} got an unusable reply ({type(error).__name__}: "
                    f"{_one_line(error)}); use a stronger --prompt-lm"
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

    Each may also be a class of DSPy's `Teleprompter`.
    """

    #: Makes a chain from its name. Set by `chain`.
    chain_of: Callable[[str], type[Optimizer]]
    #: Makes an optimizer from a class or an object, and a name. Set by `external`.
    adapt: Callable[[Any, str], type[Optimizer]]

    def get(self, name: str) -> type[Optimizer]:
        """Return the optimizer called `name`.

        Raises:
            UnknownNameError: There is none. The message lists similar names.
            ConfigError: `name` refers to something else.
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
    """Score `program` on `examples` with the task's metric.

    Args:
        program: The program.
        examples: Full examples.
        task: Metric, LM and workers.

    Returns:
        Scores in the order of `examples`. A run that raises scores 0 and counts as failed.

    Raises:
        RunError: The LM is down.
    """
    devset = for_optimizer(examples)
    if not devset:
        return Scores((), 0)
    evaluate = dspy.Evaluate(devset=devset, metric=task.metric, display_progress=False)
    with _working_on(task), dspy.context(trace=None):
        rows = evaluate(guarded(program)).results
        if reason := unmetered_reason():
            raise LimitsError(reason)
    failed = sum(not prediction.keys() for _, prediction, _ in rows)
    return Scores(tuple(float(score) for *_, score in rows), failed)


@contextmanager
def _working_on(task: Task) -> Iterator[None]:
    """Apply the settings of `task` to a block, and report an LM that is down in one line."""
    context = current().plus(current().get(CompilePhase) or CompilePhase("student"))
    settings = {"lm": task.seeded(task.lm), "num_threads": task.workers, "max_errors": NEVER}
    with logged_to(task.log_folder / "optimizer.log"), use(context, **settings):
        try:
            yield
        except UnmeteredError as error:
            raise LimitsError(str(error)) from None
        except CallLimitExceededError as error:
            raise RunError(_one_line(error)) from None
        except (LMDownError, LMError) as error:  # a prompt model raises LMError
            raise RunError(
                f"the LM refuses calls ({_one_line(error)}); repeat the same command later, "
                "finished calls are saved"
            ) from (error if isinstance(error, LMError) else None)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
