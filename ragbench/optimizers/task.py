"""What an optimizer works on: the task, its candidates, and the budget it states beforehand."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from ragbench.context import KEY, current
from ragbench.data import for_optimizer
from ragbench.ledger import Side
from ragbench.lms.lm import RagbenchLM
from ragbench.optimizers.scoring import Judgement, Scorer, full_metric
from ragbench.optimizers.tally import Tally
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

#: Errors after which DSPy gives up; a bad question is data, so never. A dead LM ends it.
NEVER = 10**9
#: Numbered samples between those of one seed and the next: more than a compile draws.
_ROLLOUTS = 100_000


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
        """Runs of the program, by teacher and student."""
        return self.teacher_runs + self.student_runs

    def plus(self, budget: "Budget") -> "Budget":
        """This and `budget`."""
        return Budget(
            self.teacher_runs + budget.teacher_runs,
            self.student_runs + budget.student_runs,
            self.prompt_calls + budget.prompt_calls,
        )


@dataclass(frozen=True)
class Needs:
    """What an optimizer uses; a valset is always used to score what comes out.

    `package` is imported by it, and comes with an extra.
    """

    trainset: bool = True
    prompt_lm: bool = False
    teacher: bool = False
    package: str = ""

    def plus(self, needs: "Needs") -> "Needs":
        """What this or `needs` uses."""
        return Needs(
            self.trainset or needs.trainset,
            self.prompt_lm or needs.prompt_lm,
            self.teacher or needs.teacher,
            self.package or needs.package,
        )

    def __str__(self) -> str:
        names = [name for name in ("trainset", "prompt_lm", "teacher") if getattr(self, name)]
        return ", ".join(names) or "nothing but the program"


@dataclass(frozen=True)
class Task:
    """The task of a compile: questions, scorer and LMs.

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
    #: What was tried; a search that is under way has one of its own.
    tally: Tally = field(default_factory=Tally)
    #: Called with the number of runs so far.
    on_run: Callable[[], None] | None = None

    def size(self, program: RAGProgram) -> Size:
        """What the budget of compiling `program` depends on."""
        return Size(len(program.predictors()), len(self.train), len(self.val))

    @property
    def trainset(self) -> list[dspy.Example]:
        """Questions and answers for training, in an order that the seed decides.

        DSPy's few-shot optimizers are seeded with 0 inside, so the order is their only seed.
        """
        examples = for_optimizer(self.train)
        return random.Random(self.seed).sample(examples, len(examples))

    @property
    def valset(self) -> list[dspy.Example]:
        return for_optimizer(self.val)

    @property
    def metric(self) -> Callable[..., Judgement]:
        """The metric of five arguments, which gives a score with feedback."""
        return full_metric(self.scorer, self.train, self.tally.note)

    def seeded(self, lm: dspy.LM) -> dspy.LM:
        """`lm`, of which the samples that an optimizer draws by number depend on the seed.

        DSPy counts them from 0 or 1 in every compile, so that two seeds would draw the same ones
        from a cache, or from a server that has a seed.
        """
        if isinstance(lm, RagbenchLM):
            return lm.copy(first_rollout=self.seed * _ROLLOUTS)
        return lm

    @property
    def writer(self) -> dspy.LM:
        """The LM that writes instructions."""
        return self.prompt_lm or self.lm

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """Settings under which DSPy runs the teacher; empty where the LM teaches itself."""
        if self.teacher is None:
            return {}
        # Without roles: an LM of a role's own would answer in the teacher's place.
        context = replace(current(), role_lms={}).plus(Side("teacher"))
        settings = {"lm": self.seeded(self.teacher), KEY: context}
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
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class Candidate:
    """A program that was tried on validation questions.

    `scores` are in the order of these, None for one that it was not asked; `calls` and `tokens` are
    those of the runs that were scored, `order` is its place, from 1, in the order of trial: None
    where nobody counted.
    """

    program: RAGProgram
    scores: Sequence[float | None]
    calls: int | None = 0
    tokens: int | None = 0
    order: int | None = None

    @property
    def known(self) -> list[float]:
        """The scores of the questions that it was asked."""
        return [score for score in self.scores if score is not None]

    @property
    def score(self) -> float:
        """The mean of the known scores, in [0, 1]; 0 where none is."""
        return sum(self.known) / max(1, len(self.known))

    @property
    def is_whole(self) -> bool:
        """Whether it was asked every validation question."""
        return None not in self.scores


@dataclass(frozen=True)
class SearchResult:
    """The result of a search; `files` are further JSON files that the artefact must hold.

    `candidates` are best first. `left_out` says why replies of the writer were left out, one text
    each.
    """

    program: RAGProgram
    candidates: Sequence[Candidate] = ()
    files: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[str] = ()
