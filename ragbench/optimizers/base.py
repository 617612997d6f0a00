"""What every optimizer stands on: the contract, the budget it states beforehand, and the task.

An optimizer here is one of DSPy's, with its defaults that mislead a RAG program mended: it sees
questions and answers alone, selects on the validation set, runs with an explicit seed and number
of workers, is not ended by one bad question, and writes to a log instead of the terminal.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError, LMInvalidRequestError
from pydantic import Field

from ragbench.data.base import for_optimizer
from ragbench.errors import ConfigError, RunError, UnknownNameError
from ragbench.knobs import Knobs, resolve
from ragbench.optimizers.demos import finish, make_student, watched
from ragbench.optimizers.outage import OUTAGE_KEY, LMDownError, Outage
from ragbench.optimizers.scoring import Scorer, search_metric
from ragbench.optimizers.taming import tamed
from ragbench.programs.base import RAGProgram
from ragbench.programs.trace import ROLE_LMS_KEY
from ragbench.registry import Registry

#: Errors after which DSPy gives up; a bad question is data, so never. A dead LM is `Outage`'s.
NEVER = 10**9
#: Which side of a compile a call is made on, in `dspy.settings`: student, teacher, validation.
SIDE_KEY = "rb_side"
PRESETS = ("light", "medium", "heavy")


@dataclass(frozen=True)
class Range:
    """A number of runs or calls that is known only to lie between two bounds."""

    low: int = 0
    high: int = 0

    @classmethod
    def exactly(cls, n: int) -> Range:
        """A number that is known."""
        return cls(n, n)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, low: int, high: int | None = None) -> Range:
        """This many times something between `low` and `high`, by default `low`."""
        return Range(self.low * low, self.high * (low if high is None else high))

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Size:
    """What a budget depends on: predictors of the program, and questions given."""

    n_predictors: int
    n_train: int
    n_val: int


@dataclass(frozen=True)
class Budget:
    """What a compile will spend: runs of the whole program, and calls of the prompt model.

    `teacher_runs` collect demonstrations from training questions; `student_runs` score candidates.
    """

    teacher_runs: Range = Range()
    student_runs: Range = Range()
    prompt_calls: Range = Range()

    @property
    def runs(self) -> Range:
        """Runs of the program by either model."""
        return self.teacher_runs + self.student_runs

    def lm_calls(self, low: int, high: int) -> Range:
        """LM calls in all, where one run of the program takes between `low` and `high`."""
        return self.runs.times(low, high) + self.prompt_calls


@dataclass(frozen=True)
class Needs:
    """What an optimizer uses; a valset is always used to score what comes out."""

    trainset: bool = True
    prompt_lm: bool = False
    teacher: bool = False

    def __str__(self) -> str:
        words = [name for name in ("trainset", "prompt_lm", "teacher") if getattr(self, name)]
        return ", ".join(words) or "nothing but the program"


@dataclass(frozen=True)
class Task:
    """What to compile for.

    `train` and `val` are full examples; an optimizer is handed their questions and answers alone.
    `prompt_lm` writes instructions and `teacher` answers training questions; None for `lm`.
    """

    train: Sequence[dspy.Example]
    val: Sequence[dspy.Example]
    scorer: Scorer
    lm: dspy.LM
    log_folder: Path
    prompt_lm: dspy.LM | None = None
    teacher: dspy.LM | None = None
    teacher_adapter: dspy.Adapter | None = None
    seed: int = 0
    workers: int = 1

    @property
    def trainset(self) -> list[dspy.Example]:
        """Questions and answers for training, in an order that the seed decides.

        DSPy's few-shot optimizers are seeded with 0 inside, so the order is their only seed.
        """
        return random.Random(self.seed).sample(for_optimizer(self.train), len(self.train))

    @property
    def valset(self) -> list[dspy.Example]:
        """Questions and answers for validation, in the given order."""
        return for_optimizer(self.val)

    @property
    def metric(self) -> Any:
        """A strict bool under a trace, else the score as a float."""
        return search_metric(self.scorer)

    @property
    def writer(self) -> dspy.LM:
        """The LM that writes instructions."""
        return self.prompt_lm or self.lm

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """Settings under which DSPy runs the teacher; empty where the LM teaches itself."""
        if self.teacher is None:
            return {}
        settings: dict[str, Any] = {
            "lm": self.teacher,
            SIDE_KEY: "teacher",
            ROLE_LMS_KEY: {},  # an LM of a role's own would answer in the teacher's place
        }
        if self.teacher_adapter is not None:
            settings["adapter"] = self.teacher_adapter
        return settings


@dataclass(frozen=True)
class Scores:
    """Scores of one program over examples, in their order; `failed` counts runs that raised."""

    scores: tuple[float, ...]
    failed: int = 0

    @property
    def mean(self) -> float:
        """Their mean, in [0, 1]."""
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class Candidate:
    """A program that was tried: what its score was taken over, and its score in [0, 1] if known."""

    program: RAGProgram
    score: float | None
    note: str = ""


@dataclass(frozen=True)
class Found:
    """What a search came to; `files` are further JSON files that the artefact must hold."""

    program: RAGProgram
    candidates: Sequence[Candidate] = ()
    files: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


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
    def search(self, student: RAGProgram, task: Task) -> Found:
        """The best program found, starting from `student`, and what else was tried."""

    @classmethod  # noqa: B027
    def attach(cls, program: RAGProgram, folder: Path) -> None:
        """Give a loaded `program` what the optimizer kept beside its state; by default nothing."""

    def check(self, size: Size) -> None:
        """Do nothing if the optimizer can work with data of this size.

        Raises:
            ConfigError: there are too few questions.
        """
        if self.needs.trainset and size.n_train < 1:
            raise ConfigError(f"optimizer {self.name} needs training questions; there are none")
        if size.n_val < 1:
            raise ConfigError(f"optimizer {self.name} needs validation questions; there are none")

    def compile(self, program: RAGProgram, task: Task) -> Found:
        """The compiled program, plain and ready to save, and all candidates, best first.

        `program` is left as it was. What DSPy prints and logs is in `optimizer.log` of the task's
        folder.

        Raises:
            RunError: the LM is down, or the prompt model's replies cannot be used.
            ConfigError: there are too few questions.
        """
        self.check(Size(len(program.predictors()), len(task.train), len(task.val)))
        student = make_student(program, demo_tokens=self.knobs.demo_context_tokens)
        with tamed(task.log_folder / "optimizer.log"), _settings(task):
            try:
                found = self.search(student, task)
            except LMDownError as error:
                raise RunError(_down(error)) from None
            except (LMInvalidRequestError, AdapterParseError) as error:
                raise RunError(_unusable(self.name, error)) from error
            except LMError as error:  # of the prompt model, on which DSPy gives up at once
                raise RunError(_down(error)) from error
        ranked = sorted(found.candidates, key=lambda candidate: -(candidate.score or 0.0))
        return Found(
            program=finish(found.program),
            candidates=[Candidate(finish(c.program), c.score, c.note) for c in ranked],
            files=found.files,
            notes=found.notes,
        )


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer", package="ragbench.optimizers")


def measure(program: dspy.Module, examples: Sequence[dspy.Example], task: Task) -> Scores:
    """The task's scorer over `examples`; a run that raises scores 0 and is counted.

    Raises:
        RunError: the LM is down.
    """
    evaluate = dspy.Evaluate(
        devset=for_optimizer(examples),
        metric=search_metric(task.scorer),
        num_threads=task.workers,
        max_errors=NEVER,
        display_progress=False,
    )
    with tamed(task.log_folder / "optimizer.log"), _settings(task), dspy.context(trace=None):
        try:
            result = evaluate(watched(program))
        except LMDownError as error:
            raise RunError(_down(error)) from None
    rows = result.results
    failed = sum(not prediction.keys() for _, prediction, _ in rows)
    return Scores(tuple(float(score) for *_, score in rows), failed)


def candidates_of(program: Any, *, scale: float = 100.0) -> list[Candidate]:
    """What DSPy hung on the best program as `candidate_programs`; scores are out of `scale`."""
    return [
        Candidate(cast(RAGProgram, row["program"]), round(row["score"] / scale, 6), _note(row))
        for row in getattr(program, "candidate_programs", ())
    ]


def trials_for(n_variables: int, n_candidates: int) -> int:
    """DSPy's number of trials for MIPRO and GEPA: 2 V log2(N), and at least 1.5 N."""
    return int(max(2 * n_variables * math.log2(n_candidates), 1.5 * n_candidates))


def _note(row: Mapping[str, Any]) -> str:
    return f"seed {row['seed']}" if "seed" in row else ""


def _settings(task: Task) -> Any:
    return dspy.context(
        lm=task.lm,
        num_threads=task.workers,
        max_errors=NEVER,
        **{SIDE_KEY: dspy.settings.get(SIDE_KEY) or "student", OUTAGE_KEY: Outage()},
    )


def _down(error: BaseException) -> str:
    return (
        f"the LM takes no more calls ({_one_line(error)}); when it does, give the same command "
        "again: finished calls are kept"
    )


def _unusable(name: str, error: Exception) -> str:
    return (
        f"optimizer {name} got a reply it cannot use ({type(error).__name__}: {_one_line(error)}); "
        "give a stronger --prompt-lm, or fewer candidates by --opt-set"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160]
