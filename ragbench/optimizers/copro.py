"""Instructions by coordinate ascent over proposals (COPRO, of DSPy: arXiv:2310.03714)."""

from __future__ import annotations

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task, candidates_of
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class COPROKnobs(OptimizerKnobs):
    """Knobs of `copro`."""

    breadth: int = Field(4, ge=2, le=50, description="instructions per predictor and round")
    depth: int = Field(2, ge=1, le=10, description="rounds")
    temperature: float = Field(1.0, ge=0, le=2, description="of the prompt model")


@OPTIMIZERS.register("copro")
class COPRO(Optimizer):
    """`dspy.COPRO`, scored on the validation set: it has no other use for data.

    DSPy's scores each candidate on all training questions, and takes no seed; the seed goes to the
    prompt model.
    """

    name = "copro"
    description = "instructions by a prompt model that sees earlier ones with their scores"
    source = "arXiv:2310.03714"
    formula = (
        "V x breadth x depth program runs for one predictor, else at most "
        "V x P x breadth x depth (depth + 1) / 2; P x (breadth x depth - 1) prompt calls"
    )
    needs = Needs(trainset=False, prompt_lm=True)
    Knobs = COPROKnobs
    presets = {  # noqa: RUF012
        "medium": {"breadth": 6, "depth": 3},
        "heavy": {"breadth": 10, "depth": 3},
    }

    def estimate(self, size: Size) -> Budget:
        """A validation per candidate; with several predictors all are scored again each round."""
        b, d, p = self.knobs.breadth, self.knobs.depth, size.n_predictors
        scored = b * d if p == 1 else p * b * d * (d + 1) // 2
        return Budget(
            student_runs=Range.exactly(scored * size.n_val),
            prompt_calls=Range.exactly(p * (b * d - 1)),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The candidate with the highest mean score on the validation set."""
        search = dspy.COPRO(
            prompt_model=task.writer.copy(rollout_id=task.seed),
            metric=task.metric,
            breadth=self.knobs.breadth,
            depth=self.knobs.depth,
            init_temperature=self.knobs.temperature,
        )
        settings = {"num_threads": task.workers, "display_progress": False}
        best = search.compile(student, trainset=task.valset, eval_kwargs=settings)
        return SearchResult(best, candidates_of(best))
