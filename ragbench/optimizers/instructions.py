"""Optimizers with a prompt model that writes instructions, some with demonstrations too."""

import logging
import random
import shutil
from typing import Any

import dspy
from dspy import AdapterParseError, LMError
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs, measure
from ragbench.optimizers.bootstrap import SHOT_NAMES, BootstrapKnobs, bootstrap_runs, teaching
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

logger = logging.getLogger("dspy.ragbench")  # goes to the log of the compile


class COPROKnobs(OptimizerKnobs):
    """Parameters of `copro`."""

    breadth: int = Field(4, ge=2, le=50, description="instructions per predictor and round")
    depth: int = Field(2, ge=1, le=10, description="rounds")
    temperature: float = Field(1.0, ge=0, le=2, description="temperature of the prompt model")


@OPTIMIZERS.register("copro")
class COPRO(Optimizer):
    """`dspy.COPRO`, scored on the validation set, because it has no other use for data.

    DSPy's version scores each candidate on all training questions, and takes no seed. Here the seed
    applies to the prompt model.
    """

    name = "copro"
    description = "instructions by a prompt model that sees earlier ones with their scores"
    source = "arXiv:2310.03714"
    sees = "earlier instructions with their scores"
    changes = "instructions"
    renamed = {  # noqa: RUF012
        "breadth": "breadth", "depth": "depth", "init_temperature": "temperature",
    }  # fmt: skip
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
        """Return the cost: a validation per candidate, all again each round if P > 1."""
        b = self.knobs.breadth
        d = self.knobs.depth
        p = size.n_predictors
        scored = b * d if p == 1 else p * b * d * (d + 1) // 2
        return Budget(
            student_runs=Range.exactly(scored * size.n_val),
            prompt_calls=Range.exactly(p * (b * d - 1)),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        search = dspy.COPRO(
            prompt_model=task.writer.copy(rollout_id=0),
            metric=task.metric,
            **self.arguments(),
        )
        silent = {"display_progress": False}
        return SearchResult(search.compile(student, trainset=task.valset, eval_kwargs=silent))


class GEPAKnobs(OptimizerKnobs):
    """Parameters of `gepa`."""

    candidates: int = Field(6, ge=2, le=100, description="sets the budget by DSPy's formula")
    runs: int = Field(0, ge=0, le=100_000, description="program runs; 0 for DSPy's formula")
    max_full_evals: int = Field(
        0, ge=0, le=10_000, description="the same as runs, in times of T + V; 0 for none"
    )
    minibatch: int = Field(3, ge=1, le=100, description="questions reflected on at once")


@OPTIMIZERS.register("gepa")
class GEPA(Optimizer):
    """`dspy.GEPA`, with feedback that names missed hops and wrong forms."""

    name = "gepa"
    description = "instructions rewritten by a prompt model that reads what went wrong"
    source = "arXiv:2507.19457"
    sees = "training questions with inputs, replies and feedback, which has gold answers and titles"
    changes = "instructions"
    formula = (
        "runs (by default DSPy's formula over P, V and candidates) program runs, which the last "
        "step may pass by V + 2 minibatches, and at most one prompt call per (minibatch) runs"
    )
    needs = Needs(prompt_lm=True)
    Knobs = GEPAKnobs
    presets = {"medium": {"candidates": 12}, "heavy": {"candidates": 18}}  # noqa: RUF012
    renamed = {  # noqa: RUF012
        "max_metric_calls": "runs", "reflection_minibatch_size": "minibatch",
    }  # fmt: skip
    dspy_class = dspy.GEPA

    def runs(self, size: Size) -> int:
        """Return the number of program runs: the given one, or that of DSPy's formula."""
        if self.knobs.runs and self.knobs.max_full_evals:
            raise ConfigError("optimizer gepa: runs and max_full_evals are two budgets; give one")
        if self.knobs.runs:
            return int(self.knobs.runs)
        if self.knobs.max_full_evals:
            return int(self.knobs.max_full_evals * (size.n_train + size.n_val))
        formula: Any = dspy.GEPA.auto_budget
        return int(formula(None, size.n_predictors, self.knobs.candidates, size.n_val))

    def estimate(self, size: Size) -> Budget:
        runs = self.runs(size)
        step = self.knobs.minibatch
        return Budget(
            student_runs=Range(runs, max(runs, size.n_val) + size.n_val + 2 * step),
            prompt_calls=Range(0, max(runs - size.n_val, 0) // step + 1),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        folder = task.log_folder / "gepa"
        # Its log lacks the random state, so after a kill the cache must replay everything.
        shutil.rmtree(folder, ignore_errors=True)
        size = task.size(student)
        arguments = {
            **self.arguments(dspy.GEPA.__init__),
            "max_metric_calls": self.runs(size),
            "reflection_lm": task.writer,
            "log_dir": str(folder),
        }
        search = dspy.GEPA(task.metric, seed=task.seed, track_stats=True, **arguments)
        best = search.compile(student, trainset=task.trainset, valset=task.valset)
        return SearchResult(best, notes={"program_runs": best.detailed_results.total_metric_calls})


class SIMBAKnobs(OptimizerKnobs):
    """Parameters of `simba`."""

    minibatch: int = Field(8, ge=1, le=1000, description="training questions per step")
    candidates: int = Field(4, ge=2, le=50, description="samples per question; programs per step")
    steps: int = Field(4, ge=1, le=100, description="steps")
    demos: int = Field(4, ge=0, le=64, description="maximum demonstrations per predictor")


@OPTIMIZERS.register("simba")
class SIMBA(Optimizer):
    """`dspy.SIMBA`, which selects the winner of its steps on the validation set.

    DSPy's version selects on the training set, where a program sees its own demonstrations'
    questions.
    """

    name = "simba"
    description = "rules a prompt model draws from good and bad attempts, and demonstrations"
    source = "dspy.SIMBA"
    sees = "two runs of a training question with all calls, its gold answers and feedback"
    changes = "both"
    renamed = {  # noqa: RUF012
        "bsize": "minibatch", "num_candidates": "candidates", "max_steps": "steps",
        "max_demos": "demos",
    }  # fmt: skip
    dspy_class = dspy.SIMBA
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
        """Check the sizes, which raises ConfigError if questions do not fill a minibatch."""
        super().check(size)
        if size.n_train < self.knobs.minibatch:
            raise ConfigError(
                f"optimizer simba has {size.n_train} training questions for a minibatch of "
                f"{self.knobs.minibatch}; give more, or --opt-set minibatch={size.n_train}"
            )

    def estimate(self, size: Size) -> Budget:
        n = self.knobs.candidates
        batch = self.knobs.minibatch
        steps = self.knobs.steps
        most = min(n, batch) + 1 if n + 1 <= batch else batch
        winners = min(steps, n) + 1
        final = Range(1, winners).times(size.n_train + size.n_val)
        return Budget(
            student_runs=Range(steps * batch * n, steps * batch * (n + most)) + final,
            prompt_calls=Range(0, steps * batch),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """Return the winner of a step, or the program itself, with the best validation score."""
        settings = task.teacher_settings
        if settings:
            # SIMBA writes a rollout id into its teacher.
            settings["lm"] = settings["lm"].copy()
        search = dspy.SIMBA(
            metric=task.metric,
            prompt_model=task.writer,
            teacher_settings=settings or None,
            **self.arguments(dspy.SIMBA.__init__),
        )
        best = search.compile(student, trainset=task.trainset, seed=task.seed)
        winners = []
        means = []
        for row in best.candidate_programs:
            winners.append(row["program"])
            means.append(measure(row["program"], task.val, task).mean)
        return SearchResult(winners[means.index(max(means))])


class InferRulesKnobs(BootstrapKnobs):
    """Parameters of `infer_rules`."""

    candidates: int = Field(3, ge=1, le=50, description="sets of rules tried")
    rules: int = Field(5, ge=1, le=50, description="rules per predictor")
    shown: int = Field(20, ge=1, le=1000, description="questions per prompt of the prompt model")


@OPTIMIZERS.register("infer_rules")
class InferRules(Optimizer):
    """`dspy.InferRules` over a bootstrap, with its best candidate selected."""

    name = "infer_rules"
    description = "rules that a prompt model reads out of training answers, over a bootstrap"
    source = "dspy.InferRules"
    sees = "training questions with their answers, and demonstrations"
    changes = "both"
    renamed = SHOT_NAMES | {"num_candidates": "candidates", "num_rules": "rules"}
    formula = (
        "candidates x V program runs, one bootstrap of at most T x rounds runs; "
        "candidates x P prompt calls, more where a prompt does not fit"
    )
    needs = Needs(prompt_lm=True, teacher=True)
    Knobs = InferRulesKnobs
    presets = {  # noqa: RUF012
        "medium": {"candidates": 6, "rules": 10},
        "heavy": {"candidates": 10, "rules": 10},
    }

    def estimate(self, size: Size) -> Budget:
        sets = self.knobs.candidates
        halvings = max(self.knobs.shown.bit_length(), 1)
        return Budget(
            teacher_runs=bootstrap_runs(self.knobs, size.n_train),
            student_runs=Range.exactly(sets * size.n_val),
            prompt_calls=Range(1, halvings).times(sets * size.n_predictors),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        search = _InferRules(**teaching(self.knobs, task), **self.arguments())
        search.shown = self.knobs.shown
        search.rules_induction_program.teacher_settings = {"lm": task.writer}
        search.rules_induction_program.rng = random.Random(task.seed)
        return SearchResult(search.compile(student, trainset=task.trainset, valset=task.valset))


class _InferRules(dspy.InferRules):
    """`dspy.InferRules` without shared signatures.

    DSPy's version writes rules into a signature that all candidates share, so the last rules win.
    """

    #: Number of examples in one prompt of the prompt model.
    shown: int

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if natural_language_rules:
            predictor.signature = predictor.signature.append_instructions(
                "Please adhere to the following rules when making your prediction:\n"
                f"{natural_language_rules}"
            )

    def induce_natural_language_rules(self, predictor: Any, trainset: Any) -> str:
        """Write rules from at most `shown` examples, fewer if they do not fit, or an empty text."""
        demos = self.get_predictor_demos(trainset[: self.shown], predictor)
        while demos:
            try:
                examples = self.format_examples(demos, predictor.signature)
                return str(self.rules_induction_program(examples))
            except (LMError, AdapterParseError) as error:
                logger.warning("no rules from %d examples: %s", len(demos), error)
                demos = demos[: len(demos) // 2]
        return ""
