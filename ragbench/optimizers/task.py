"""The input of an optimizer and its results: task, budget and candidates."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from ragbench.context import KEY, current
from ragbench.data import for_optimizer
from ragbench.ledger import CompilePhase
from ragbench.lms.lm import RagbenchLM
from ragbench.optimizers.candidate_log import CandidateLog
from ragbench.optimizers.scoring import Judgement, Scorer, full_metric
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

#: Maximum errors for DSPy: unlimited, because a failed question is data. A dead LM ends it.
NEVER = 10**9
#: Distance between the sample numbers of two seeds, more than a compile draws.
_ROLLOUTS = 100_000


@dataclass(frozen=True)
class Size:
    """Inputs of a budget: number of predictors and questions."""

    n_predictors: int
    n_train: int
    n_val: int


@dataclass(frozen=True)
class Budget:
    """Cost of a compile: runs of the whole program, and calls of the prompt model.

    `teacher_runs` collect demonstrations from training questions, and `student_runs` score
    candidates.
    """

    teacher_runs: Range = Range()
    student_runs: Range = Range()
    prompt_calls: Range = Range()

    @property
    def runs(self) -> Range:
        """Runs of the program by teacher and student."""
        return self.teacher_runs + self.student_runs

    def plus(self, budget: "Budget") -> "Budget":
        """Return the sum of this budget and `budget`."""
        return Budget(
            self.teacher_runs + budget.teacher_runs,
            self.student_runs + budget.student_runs,
            self.prompt_calls + budget.prompt_calls,
        )


@dataclass(frozen=True)
class Needs:
    """Requirements of an optimizer, in addition to a validation set.

    `package` is a package that it imports, installed by an extra.
    """

    trainset: bool = True
    prompt_lm: bool = False
    teacher: bool = False
    package: str = ""

    def plus(self, needs: "Needs") -> "Needs":
        """Return the union of these needs and `needs`."""
        return Needs(
            self.trainset or needs.trainset,
            self.prompt_lm or needs.prompt_lm,
            self.teacher or needs.teacher,
            self.package or needs.package,
        )

    def __str__(self) -> str:
        needed = list(filter(self.__getattribute__, ("trainset", "prompt_lm", "teacher")))
        return ", ".join(needed) or "nothing but the program"


@dataclass(frozen=True)
class Task:
    """Task of a compile: questions, scorer and LMs.

    `train` and `val` are full examples, of which an optimizer sees only questions and answers.
    `prompt_lm` writes instructions and `teacher` answers training questions. Each is `lm` if None.
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
    #: Record of the search. `compile` replaces it.
    tally: CandidateLog = field(default_factory=CandidateLog)
    #: Called once per run of a student.
    on_run: Callable[[], None] | None = None

    def size(self, program: RAGProgram) -> Size:
        """Return the inputs of the budget for compiling `program`."""
        return Size(len(program.predictors()), len(self.train), len(self.val))

    @property
    def trainset(self) -> list[dspy.Example]:
        """Training questions and answers, in an order that depends on the seed.

        DSPy's few-shot optimizers always use the seed 0, so only the order varies.
        """
        examples = for_optimizer(self.train)
        return random.Random(self.seed).sample(examples, len(examples))

    @property
    def valset(self) -> list[dspy.Example]:
        return for_optimizer(self.val)

    @property
    def metric(self) -> Callable[..., Judgement]:
        """Metric with five arguments, which returns a score with feedback."""
        return full_metric(self.scorer, self.train, self.tally.note)

    def seeded(self, lm: dspy.LM) -> dspy.LM:
        """Return `lm` with sample numbers that depend on the seed.

        DSPy counts samples from 0 or 1 in every compile. So two seeds would get the same samples
        from a cache, or from a server with a seed.
        """
        if isinstance(lm, RagbenchLM):
            return lm.copy(first_rollout=self.seed * _ROLLOUTS)
        return lm

    @property
    def writer(self) -> dspy.LM:
        """LM that writes instructions."""
        return self.prompt_lm or self.lm

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """DSPy settings for the teacher. Empty if the LM is its own teacher."""
        if self.teacher is None:
            return {}
        # Remove the LMs of roles, which would answer instead of the teacher.
        context = replace(current(), role_lms={}).plus(CompilePhase("teacher"))
        settings = {"lm": self.seeded(self.teacher), KEY: context}
        if self.teacher_adapter is not None:
            settings["adapter"] = self.teacher_adapter
        return settings


@dataclass(frozen=True)
class Scores:
    """Scores of a program in the order of the examples. `failed` counts runs that raised."""

    scores: tuple[float, ...]
    failed: int = 0

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class Candidate:
    """A program that was tried on validation questions.

    `scores` are in the order of the questions, None for a question that it did not run. `calls` and
    `tokens` are the usage of the scored runs, and `order` is the position in the search, from 1.
    They are None if unknown.
    """

    program: RAGProgram
    scores: Sequence[float | None]
    calls: int | None = 0
    tokens: int | None = 0
    order: int | None = None

    @property
    def known(self) -> list[float]:
        """Scores of the questions that the program answered or failed."""
        return [score for score in self.scores if score is not None]

    @property
    def score(self) -> float:
        """Mean of the known scores, in [0, 1], or 0 if none is known."""
        return sum(self.known) / max(1, len(self.known))

    @property
    def is_whole(self) -> bool:
        """True if the program ran every validation question."""
        return None not in self.scores


@dataclass(frozen=True)
class SearchResult:
    """Result of a search. `files` are additional JSON files for the saved program.

    `candidates` are best first. `left_out` has one text per dropped reply of the writer.
    """

    program: RAGProgram
    candidates: Sequence[Candidate] = ()
    files: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[str] = ()
