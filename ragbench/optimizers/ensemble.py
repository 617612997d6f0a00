"""Several compiled programs that vote: the best candidates of a random search.

`dspy.Ensemble` asks every program each question and combines their predictions, but cannot be
saved. Here the demonstrations of all programs are saved as JSON next to the best program.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import dspy
from pydantic import Field

from ragbench.metrics import normalise_answer
from ragbench.optimizers.base import OPTIMIZERS, OptimizerKnobs
from ragbench.optimizers.bootstrap import RandomSearch, RandomSearchKnobs
from ragbench.optimizers.students import answer_by, finish
from ragbench.optimizers.task import SearchResult, Task
from ragbench.programs.core import RAGProgram

MEMBERS = "ensemble.json"


class EnsembleKnobs(RandomSearchKnobs):
    """Parameters of `ensemble`."""

    size: int = Field(3, ge=2, le=20, description="programs that vote")


@OPTIMIZERS.register("ensemble")
class Ensemble(RandomSearch):
    """The best candidates of `random_search`, whose answers vote."""

    name = "ensemble"
    description = "the best programs of a random search, all asked at each question; they vote"
    source = "dspy.Ensemble with dspy.majority, over BootstrapFewShotWithRandomSearch"
    changes = "demonstrations, and the calls of a question: those of all programs"
    Knobs: ClassVar[type[OptimizerKnobs]] = EnsembleKnobs

    @property
    def runs_each(self) -> int:  # type: ignore[override]
        """Number of programs that one run asks."""
        return int(self.knobs.size)

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        best = super().search(student, task).program
        tried = sorted(task.tally.tried.values(), key=lambda entry: -sum(entry.scores.values()))
        members = []
        for entry in tried[: self.knobs.size]:
            predictors = finish(entry.program).named_predictors()
            members.append({name: predictor.demos for name, predictor in predictors})
        files = {MEMBERS: {"members": members}}
        return SearchResult(best, files=files, notes={"votes": len(members)})

    @classmethod
    def use(cls, program: RAGProgram, files: Mapping[str, Any]) -> None:
        """Make `program` ask all programs in `files` each question."""
        let_vote(program, files[MEMBERS]["members"])


def let_vote(program: RAGProgram, members: Sequence[Mapping[str, Any]]) -> None:
    """Make `program` answer by the vote of copies, one per item of `members`.

    The most common answer wins. If tied, the answer of the better program wins, which is the first.

    Args:
        program: The program. Changed in place.
        members: Demonstrations by predictor, of each program.
    """
    for member in members:
        for name, _ in program.named_predictors():
            list(member[name])

    def answer(plain: RAGProgram, question: str) -> dspy.Prediction:
        predictions = []
        answers = []
        for member in members:
            copied = cast(RAGProgram, plain.deepcopy())
            for name, predictor in copied.named_predictors():
                predictor.demos = member[name]
            prediction = copied.forward(question)
            predictions.append(prediction)
            answers.append(normalise_answer(str(prediction.answer)))
        votes = Counter(answers)
        return predictions[answers.index(max(answers, key=votes.__getitem__))]

    answer_by(program, answer)
