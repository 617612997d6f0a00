"""Rules and demonstrations drawn from the questions that vary most (SIMBA, of DSPy)."""

from __future__ import annotations

import dspy
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs, measure
from ragbench.optimizers.task import (
    Budget,
    Candidate,
    Needs,
    SearchResult,
    Size,
    Task,
    candidates_of,
)
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class SIMBAKnobs(OptimizerKnobs):
    """Knobs of `simba`."""

    minibatch: int = Field(8, ge=1, le=1000, description="training questions per step")
    candidates: int = Field(4, ge=2, le=50, description="samples per question; programs per step")
    steps: int = Field(4, ge=1, le=100, description="steps")
    demos: int = Field(4, ge=0, le=64, description="demonstrations per predictor at the most")


@OPTIMIZERS.register("simba")
class SIMBA(Optimizer):
    """`dspy.SIMBA`, with the winner of its steps chosen on the validation set.

    DSPy's chooses on the training set, where a program is shown its own demonstrations' questions.
    """

    name = "simba"
    description = "rules a prompt model draws from good and bad attempts, and demonstrations"
    source = "dspy.SIMBA"
    formula = (
        "steps x minibatch x (candidates to 2 candidates + 1) + "
        "(1 to min(steps, candidates) + 1) x (T + V) program runs; "
        "at most steps x (candidates + 1) prompt calls"
    )
    needs = Needs(prompt_lm=True, teacher=True)
    Knobs = SIMBAKnobs
    presets = {  # noqa: RUF012
        "medium": {"minibatch": 16, "candidates": 6, "steps": 6},
        "heavy": {"minibatch": 32, "candidates": 6, "steps": 8},
    }

    def check(self, size: Size) -> None:
        """Do nothing if a minibatch can be drawn.

        Raises:
            ConfigError: there are fewer training questions than a minibatch has.
        """
        super().check(size)
        if size.n_train < self.knobs.minibatch:
            raise ConfigError(
                f"optimizer simba has {size.n_train} training questions for a minibatch of "
                f"{self.knobs.minibatch}; give more, or --opt-set minibatch={size.n_train}"
            )

    def estimate(self, size: Size) -> Budget:
        """Sampling and trying per step, then DSPy's own selection and ours."""
        n, batch, steps = self.knobs.candidates, self.knobs.minibatch, self.knobs.steps
        most = min(n, batch) + 1 if n + 1 <= batch else batch
        winners = min(steps, n) + 1
        final = Range(1, winners).times(size.n_train + size.n_val)
        return Budget(
            student_runs=Range(steps * batch * n, steps * batch * (n + most)) + final,
            prompt_calls=Range(0, steps * batch),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The winner of a step, or the program itself, that scores best on validation."""
        settings = task.teacher_settings
        if settings:
            # SIMBA writes a rollout id into the teacher that it is given.
            settings["lm"] = settings["lm"].copy()
        search = dspy.SIMBA(
            metric=task.metric,
            bsize=self.knobs.minibatch,
            num_candidates=self.knobs.candidates,
            max_steps=self.knobs.steps,
            max_demos=self.knobs.demos,
            prompt_model=task.writer,
            teacher_settings=settings or None,
            num_threads=task.workers,
        )
        best = search.compile(student, trainset=task.trainset, seed=task.seed)
        tried = [
            Candidate(c.program, measured.mean, f"training {c.score:.3f}", measured.scores)
            for c in candidates_of(best, scale=1.0)
            for measured in [measure(c.program, task.val, task)]
        ]
        return SearchResult(max(tried, key=lambda c: c.score or 0.0).program, tried)
