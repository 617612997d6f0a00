"""Training questions and answers as demonstrations, without running the program at all."""

from __future__ import annotations

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.task import Budget, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram


class LabeledKnobs(OptimizerKnobs):
    """Knobs of `labeled`."""

    labeled: int = Field(8, ge=1, le=100, description="demonstrations per predictor")


@OPTIMIZERS.register("labeled")
class Labeled(Optimizer):
    """`dspy.LabeledFewShot`. Only predictors whose outputs the data holds (`answer`) get any."""

    name = "labeled"
    description = "questions and answers as demonstrations, chosen by seed; no LM call"
    formula = "no program run"
    Knobs = LabeledKnobs
    presets = {"medium": {"labeled": 16}, "heavy": {"labeled": 32}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        """Nothing."""
        return Budget()

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The first questions of the seeded order."""
        few_shot = dspy.LabeledFewShot(k=self.knobs.labeled)
        return SearchResult(few_shot.compile(student, trainset=task.trainset, sample=False))
