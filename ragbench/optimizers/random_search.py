"""Several bootstraps over shuffled questions, and the best of them on the validation set."""

from __future__ import annotations

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer
from ragbench.optimizers.bootstrap import BootstrapKnobs, bootstrap_runs, few_shot_arguments
from ragbench.optimizers.task import NEVER, Budget, Needs, SearchResult, Size, Task, candidates_of
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class RandomSearchKnobs(BootstrapKnobs):
    """Knobs of `random_search`."""

    candidates: int = Field(4, ge=1, le=100, description="shuffled bootstraps tried")


@OPTIMIZERS.register("random_search")
class RandomSearch(Optimizer):
    """`dspy.BootstrapFewShotWithRandomSearch`: also tries no demonstrations and labelled ones."""

    name = "random_search"
    description = "several bootstraps, zero-shot and labelled demonstrations; the best of them"
    source = "arXiv:2310.03714"
    formula = (
        "(candidates + 3) x V program runs, and (candidates + 1) bootstraps of at most "
        "T x rounds runs each"
    )
    needs = Needs(teacher=True)
    Knobs = RandomSearchKnobs
    presets = {"medium": {"candidates": 8}, "heavy": {"candidates": 16}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        """Bootstraps of 1 to `bootstrapped` demonstrations, and a validation of each candidate."""
        n = self.knobs.candidates
        shuffled = bootstrap_runs(self.knobs, size.n_train, least=1).times(n)
        return Budget(
            teacher_runs=bootstrap_runs(self.knobs, size.n_train) + shuffled,
            student_runs=Range.exactly((n + 3) * size.n_val),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The candidate with the highest mean score; the first of equals."""
        search = dspy.BootstrapFewShotWithRandomSearch(
            metric=task.metric,
            teacher_settings=task.teacher_settings,
            num_candidate_programs=self.knobs.candidates,
            num_threads=task.workers,
            max_errors=NEVER,
            **few_shot_arguments(self.knobs),
        )
        best = search.compile(student, trainset=task.trainset, valset=task.valset)
        return SearchResult(best, candidates_of(best))
