"""Instructions and demonstrations together (MIPROv2: Opsahl-Ong et al. 2024, arXiv:2406.11695)."""

from __future__ import annotations

import logging
import math
from typing import Any

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer
from ragbench.optimizers.bootstrap import DemoKnobs, bootstrap_runs
from ragbench.optimizers.dspy_patches import lenient_proposals
from ragbench.optimizers.task import (
    NEVER,
    Budget,
    Needs,
    SearchResult,
    Size,
    Task,
    candidates_of,
    trials_for,
)
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

logger = logging.getLogger("dspy.ragbench")

#: Above this many validation questions, trials score a sample of them.
_MINIBATCH_ABOVE = 50
_FULL_EVERY = 5


class MIPROKnobs(DemoKnobs):
    """Knobs of `mipro`."""

    candidates: int = Field(6, ge=2, le=50, description="sets of demonstrations")
    instructions: int = Field(3, ge=1, le=50, description="instructions per predictor")
    trials: int = Field(0, ge=0, le=1000, description="combinations tried; 0 for DSPy's formula")
    minibatch: int = Field(35, ge=1, le=1000, description="questions a trial scores, if V > 50")
    program_aware: bool = Field(True, description="show the program's source to the prompt model")


@OPTIMIZERS.register("mipro")
class MIPRO(Optimizer):
    """`dspy.MIPROv2` with its `auto` settings written out as knobs."""

    name = "mipro"
    description = "instructions by a prompt model and bootstrapped demonstrations, chosen by TPE"
    source = "arXiv:2406.11695"
    formula = (
        "(trials + 1) x V program runs, or V + trials x minibatch + a full validation every "
        "fifth trial if V > 50; candidates - 2 bootstraps of at most T runs each; "
        "P x instructions x (1 to 3) + a summary of the data as prompt calls; "
        "trials = max(4 P log2(candidates), 1.5 candidates)"
    )
    needs = Needs(prompt_lm=True, teacher=True, package="optuna")
    Knobs = MIPROKnobs
    presets = {  # noqa: RUF012
        "medium": {"candidates": 12, "instructions": 6},
        "heavy": {"candidates": 18, "instructions": 9},
    }

    def trials(self, n_predictors: int) -> int:
        """Combinations tried."""
        return int(self.knobs.trials or trials_for(2 * n_predictors, self.knobs.candidates))

    def estimate(self, size: Size) -> Budget:
        """Bootstraps, proposals and trials."""
        sets = max(self.knobs.candidates - 2, 0)
        shuffled = bootstrap_runs(self.knobs, size.n_train, least=1).times(max(sets - 1, 0))
        first = bootstrap_runs(self.knobs, size.n_train) if sets else Range()
        proposals = size.n_predictors * min(self.knobs.instructions, self.knobs.candidates)
        batches = math.ceil(size.n_train / 10) - 1
        each = 3 if self.knobs.program_aware else 1
        return Budget(
            teacher_runs=first + shuffled,
            student_runs=self._scoring(size),
            prompt_calls=Range(proposals + 2, proposals * each + 2 + min(batches, 9)),
        )

    def _scoring(self, size: Size) -> Range:
        trials = self.trials(size.n_predictors)
        if size.n_val <= _MINIBATCH_ABOVE:
            return Range.exactly((trials + 1) * size.n_val)
        sample = min(self.knobs.minibatch, size.n_val)
        base, full = size.n_val + trials * sample, trials // _FULL_EVERY
        return Range(base + full * size.n_val, base + (full + 1) * size.n_val)

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The best program by full validation."""
        knobs, valset = self.knobs, task.valset
        search = _MIPRO(
            metric=task.metric,
            prompt_model=task.writer,
            task_model=task.lm,
            teacher_settings=task.teacher_settings,
            max_bootstrapped_demos=knobs.bootstrapped,
            max_labeled_demos=knobs.labeled,
            auto=None,
            num_candidates=knobs.candidates,
            num_threads=task.workers,
            max_errors=NEVER,
            seed=task.seed,  # not to compile, which takes a seed of 0 for none and uses 9
            log_dir=str(task.log_folder / "mipro"),
        )
        search.num_instruct_candidates = knobs.instructions
        best = search.compile(
            student,
            trainset=task.trainset,
            valset=valset,
            num_trials=self.trials(len(student.predictors())),
            minibatch=len(valset) > _MINIBATCH_ABOVE,
            minibatch_size=min(knobs.minibatch, len(valset)),
            minibatch_full_eval_steps=_FULL_EVERY,
            program_aware_proposer=knobs.program_aware,
        )
        return SearchResult(best, candidates_of(best), notes={"lost_proposals": search.lost})


class _MIPRO(dspy.MIPROv2):
    """DSPy's, with the proposals that failed left out and counted."""

    lost = 0

    def _propose_instructions(self, *args: Any, **kwargs: Any) -> Any:
        with lenient_proposals(self._leave_out):
            return super()._propose_instructions(*args, **kwargs)

    def _leave_out(self, error: Exception) -> None:
        logger.warning("a proposal is left out: %s", error)
        self.lost += 1
