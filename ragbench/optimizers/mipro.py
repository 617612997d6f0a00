"""MIPROv2: proposed instructions and demonstrations, combined by TPE.

Opsahl-Ong et al. 2024 (arXiv:2406.11695). Without demonstrations, it is the paper's variant with
only instructions.
"""

import math

import dspy
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.optimizers.arguments import passed_to
from ragbench.optimizers.base import OPTIMIZERS, Optimizer
from ragbench.optimizers.bootstrap import SHOT_NAMES, DemoKnobs, bootstrap_runs, teaching
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class MIPROKnobs(DemoKnobs):
    """Parameters of `mipro`."""

    candidates: int = Field(6, ge=2, le=50, description="sets of demonstrations")
    instructions: int = Field(3, ge=1, le=50, description="instructions per predictor")
    trials: int = Field(0, ge=0, le=1000, description="combinations tried; 0 for DSPy's formula")
    minibatch_size: int = Field(
        35, ge=1, le=1000, description="questions that a trial scores, with minibatch"
    )
    minibatch_full_eval_steps: int = Field(
        5, ge=1, le=1000, description="trials between two full validations, with minibatch"
    )
    minibatch: bool | None = Field(
        None, description="trials score a sample of the questions; by default if V > 50"
    )
    bootstrapped: int = Field(4, ge=0, le=64, description="demonstrations from right answers")


#: Above this many validation questions, trials of MIPRO score a sample of them.
_MINIBATCH_ABOVE = 50
#: Number of demonstrations for the prompt model if the program gets none.
_SHOWN_TO_WRITER = 3


@OPTIMIZERS.register("mipro")
class MIPRO(Optimizer):
    """`dspy.MIPROv2` with explicit parameters instead of its `auto` settings."""

    name = "mipro"
    description = "instructions by a prompt model and bootstrapped demonstrations, chosen by TPE"
    source = "arXiv:2406.11695"
    sees = "training questions and answers, demonstrations, and the program's code"
    changes = "both"
    renamed = SHOT_NAMES | {
        "num_candidates": "candidates", "num_trials": "trials",
    }  # fmt: skip
    dspy_class = dspy.MIPROv2
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

    @property
    def shows_demos(self) -> bool:
        """True if the program gets demonstrations in addition to instructions."""
        return bool(self.knobs.bootstrapped or self.knobs.labeled)

    def trials(self, n_predictors: int) -> int:
        """Return the number of combinations to try: the given one, or that of DSPy's formula."""
        if self.knobs.trials:
            return int(self.knobs.trials)
        n = self.knobs.candidates
        chosen = n_predictors * (1 + self.shows_demos)
        return int(max(2 * chosen * math.log2(n), 1.5 * n))

    def uses_minibatch(self, n_val: int) -> bool:
        """Return True if a trial scores only a sample of the validation questions."""
        if self.knobs.minibatch is None:
            return n_val > _MINIBATCH_ABOVE
        return bool(self.knobs.minibatch)

    def estimate(self, size: Size) -> Budget:
        sets = max(self.knobs.candidates - 2, 0)
        knobs = self.knobs
        if not self.shows_demos:
            knobs = knobs.model_copy(update={"bootstrapped": _SHOWN_TO_WRITER})
        shuffled = bootstrap_runs(knobs, size.n_train, least=1).times(max(sets - 1, 0))
        bootstrap = bootstrap_runs(knobs, size.n_train) if sets else Range()
        proposals = size.n_predictors * min(knobs.instructions, knobs.candidates)
        batches = math.ceil(size.n_train / 10) - 1
        trials = self.trials(size.n_predictors)
        scored = Range.exactly((trials + 1) * size.n_val)
        if self.uses_minibatch(size.n_val):
            base = size.n_val + trials * min(knobs.minibatch_size, size.n_val)
            full = trials // knobs.minibatch_full_eval_steps
            scored = Range(base + full * size.n_val, base + (full + 1) * size.n_val)
        return Budget(
            teacher_runs=bootstrap + shuffled,
            student_runs=scored,
            prompt_calls=Range(proposals, proposals * 3 + 2 + min(batches, 9)),
        )

    def check(self, size: Size) -> None:
        """Check the parameters, which raises ConfigError if `labeled` lacks `bootstrapped`."""
        super().check(size)
        if self.knobs.labeled and not self.knobs.bootstrapped:
            raise ConfigError(
                "optimizer mipro: labeled > 0 requires bootstrapped > 0; set "
                "--opt-set bootstrapped=1, or --opt-set labeled=0 to tune only instructions"
            )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        knobs = self.knobs
        valset = task.valset
        search = dspy.MIPROv2(
            **teaching(knobs, task),
            prompt_model=task.writer,
            task_model=task.lm,
            max_bootstrapped_demos=knobs.bootstrapped,
            max_labeled_demos=knobs.labeled,
            auto=None,
            num_candidates=knobs.candidates,
            seed=task.seed,  # compile() would replace a seed of 0 by 9
            log_dir=str(task.log_folder / "mipro"),
            **passed_to(dspy.MIPROv2.__init__, knobs),
        )
        search.num_instruct_candidates = knobs.instructions
        best = search.compile(
            student,
            trainset=task.trainset,
            valset=valset,
            num_trials=self.trials(len(student.predictors())),
            minibatch=self.uses_minibatch(len(valset)),
            minibatch_size=min(knobs.minibatch_size, len(valset)),
            minibatch_full_eval_steps=knobs.minibatch_full_eval_steps,
            **passed_to(dspy.MIPROv2.compile, knobs),
        )
        return SearchResult(best)
