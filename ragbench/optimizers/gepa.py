"""Instructions evolved by reflection (GEPA: Agrawal et al. 2025, arXiv:2507.19457)."""

from __future__ import annotations

import shutil
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.scoring import feedback_metric
from ragbench.optimizers.task import Budget, Candidate, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class GEPAKnobs(OptimizerKnobs):
    """Knobs of `gepa`."""

    candidates: int = Field(6, ge=2, le=100, description="sets the budget by DSPy's formula")
    runs: int = Field(0, ge=0, le=100_000, description="program runs; 0 for DSPy's formula")
    minibatch: int = Field(3, ge=1, le=100, description="questions reflected on at once")
    merge: bool = Field(True, description="also join two candidates of a common ancestor")
    resume: Literal["replay", "log"] = Field(
        "replay",
        description="after a kill: replay from the cache to the same result, or go on from the log",
    )


@OPTIMIZERS.register("gepa")
class GEPA(Optimizer):
    """`dspy.GEPA`; its feedback names the missed hop, the wrong form or the unsupported claim."""

    name = "gepa"
    description = "instructions rewritten by a prompt model that reads what went wrong"
    source = "arXiv:2507.19457"
    formula = (
        "runs (by default DSPy's formula over P, V and candidates) program runs, which the last "
        "step may pass by V + 2 minibatches; at most one prompt call per (minibatch) runs"
    )
    needs = Needs(prompt_lm=True)
    Knobs = GEPAKnobs
    presets = {"medium": {"candidates": 12}, "heavy": {"candidates": 18}}  # noqa: RUF012

    def runs(self, size: Size) -> int:
        """The program runs after which no new step is begun."""
        if self.knobs.runs:
            return int(self.knobs.runs)
        formula: Any = dspy.GEPA.auto_budget
        return int(formula(None, size.n_predictors, self.knobs.candidates, size.n_val))

    def estimate(self, size: Size) -> Budget:
        """The stated runs, the overshoot of the last step, and a reflection per step."""
        runs, step = self.runs(size), self.knobs.minibatch
        return Budget(
            student_runs=Range(runs, max(runs, size.n_val) + size.n_val + 2 * step),
            prompt_calls=Range(0, max(runs - size.n_val, 0) // step + 1),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The candidate with the highest mean score on the validation set."""
        folder = task.log_folder / "gepa"
        if self.knobs.resume == "replay":
            # The log does not hold the state of GEPA's random numbers; the cache needs none.
            shutil.rmtree(folder, ignore_errors=True)
        search = dspy.GEPA(
            metric=feedback_metric(task.scorer, task.train),
            max_metric_calls=self.runs(Size(len(student.predictors()), 0, len(task.val))),
            reflection_minibatch_size=self.knobs.minibatch,
            reflection_lm=task.writer,
            use_merge=self.knobs.merge,
            num_threads=task.workers,
            log_dir=str(folder),
            track_stats=True,
            seed=task.seed,
        )
        best = search.compile(student, trainset=task.trainset, valset=task.valset)
        results = best.detailed_results
        tried = [
            Candidate(program, float(score), f"candidate {i}")
            for i, (program, score) in enumerate(
                zip(results.candidates, results.val_aggregate_scores, strict=True)
            )
        ]
        return SearchResult(best, tried, notes={"program_runs": results.total_metric_calls})
