"""Instructions that a prompt model writes, some with demonstrations beside them."""

import logging
import math
import random
import shutil
from typing import Any, cast

import dspy
from dspy import AdapterParseError, LMError
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs, measure
from ragbench.optimizers.bootstrap import BootstrapKnobs, DemoKnobs, bootstrap_runs, shot_arguments
from ragbench.optimizers.dspy_patches import lenient_proposals
from ragbench.optimizers.scoring import feedback_metric
from ragbench.optimizers.task import Budget, Candidate, Needs, SearchResult, Size, Task, tried_in
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

logger = logging.getLogger("dspy.ragbench")  # goes to the log of the compile


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
        search = dspy.COPRO(
            prompt_model=task.writer.copy(rollout_id=task.seed),
            metric=task.metric,
            breadth=self.knobs.breadth,
            depth=self.knobs.depth,
            init_temperature=self.knobs.temperature,
        )
        silent = {"display_progress": False}
        best = search.compile(student, trainset=task.valset, eval_kwargs=silent)
        return SearchResult(best, tried_in(best))


class GEPAKnobs(OptimizerKnobs):
    """Knobs of `gepa`."""

    candidates: int = Field(6, ge=2, le=100, description="sets the budget by DSPy's formula")
    runs: int = Field(0, ge=0, le=100_000, description="program runs; 0 for DSPy's formula")
    minibatch: int = Field(3, ge=1, le=100, description="questions reflected on at once")


@OPTIMIZERS.register("gepa")
class GEPA(Optimizer):
    """`dspy.GEPA`; its feedback names the missed hop and the wrong form."""

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
        if self.knobs.runs:
            return int(self.knobs.runs)
        formula: Any = dspy.GEPA.auto_budget
        return int(formula(None, size.n_predictors, self.knobs.candidates, size.n_val))

    def estimate(self, size: Size) -> Budget:
        runs, step = self.runs(size), self.knobs.minibatch
        return Budget(
            student_runs=Range(runs, max(runs, size.n_val) + size.n_val + 2 * step),
            prompt_calls=Range(0, max(runs - size.n_val, 0) // step + 1),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        folder = task.log_folder / "gepa"
        # Its log does not hold the state of its random numbers: after a kill the cache replays all.
        shutil.rmtree(folder, ignore_errors=True)
        search = dspy.GEPA(
            metric=feedback_metric(task.scorer, task.train),
            max_metric_calls=self.runs(Size(len(student.predictors()), 0, len(task.val))),
            reflection_minibatch_size=self.knobs.minibatch,
            reflection_lm=task.writer,
            log_dir=str(folder),
            track_stats=True,
            seed=task.seed,
        )
        best = search.compile(student, trainset=task.trainset, valset=task.valset)
        results = best.detailed_results
        scored = zip(results.candidates, results.val_aggregate_scores, strict=True)
        tried = [
            Candidate(program, float(score), f"candidate {i}")
            for i, (program, score) in enumerate(scored)
        ]
        return SearchResult(best, tried, notes={"program_runs": results.total_metric_calls})


class MIPROKnobs(DemoKnobs):
    """Knobs of `mipro`."""

    candidates: int = Field(6, ge=2, le=50, description="sets of demonstrations")
    instructions: int = Field(3, ge=1, le=50, description="instructions per predictor")
    trials: int = Field(0, ge=0, le=1000, description="combinations tried; 0 for DSPy's formula")
    minibatch: int = Field(35, ge=1, le=1000, description="questions a trial scores, if V > 50")


#: Above this many validation questions, trials of MIPRO score a sample of them.
_MINIBATCH_ABOVE = 50
_FULL_EVERY = 5


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
        n = self.knobs.candidates
        return int(self.knobs.trials or max(4 * n_predictors * math.log2(n), 1.5 * n))

    def estimate(self, size: Size) -> Budget:
        sets = max(self.knobs.candidates - 2, 0)
        shuffled = bootstrap_runs(self.knobs, size.n_train, least=1).times(max(sets - 1, 0))
        first = bootstrap_runs(self.knobs, size.n_train) if sets else Range()
        proposals = size.n_predictors * min(self.knobs.instructions, self.knobs.candidates)
        batches = math.ceil(size.n_train / 10) - 1
        trials = self.trials(size.n_predictors)
        scored = Range.exactly((trials + 1) * size.n_val)
        if size.n_val > _MINIBATCH_ABOVE:
            base = size.n_val + trials * min(self.knobs.minibatch, size.n_val)
            full = trials // _FULL_EVERY
            scored = Range(base + full * size.n_val, base + (full + 1) * size.n_val)
        return Budget(
            teacher_runs=first + shuffled,
            student_runs=scored,
            prompt_calls=Range(proposals + 2, proposals * 3 + 2 + min(batches, 9)),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
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
        )
        return SearchResult(best, tried_in(best), notes={"lost_proposals": search.lost})


class _MIPRO(dspy.MIPROv2):
    """DSPy's, with the proposals that failed left out and counted."""

    lost = 0

    def _propose_instructions(self, *args: Any, **kwargs: Any) -> Any:
        with lenient_proposals(self._leave_out):
            return super()._propose_instructions(*args, **kwargs)

    def _leave_out(self, error: Exception) -> None:
        logger.warning("a proposal is left out: %s", error)
        self.lost += 1


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
        """Raise ConfigError where there are fewer training questions than a minibatch has."""
        super().check(size)
        if size.n_train < self.knobs.minibatch:
            raise ConfigError(
                f"optimizer simba has {size.n_train} training questions for a minibatch of "
                f"{self.knobs.minibatch}; give more, or --opt-set minibatch={size.n_train}"
            )

    def estimate(self, size: Size) -> Budget:
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
        )
        best = search.compile(student, trainset=task.trainset, seed=task.seed)
        tried = [
            Candidate(c.program, measured.mean, f"training {c.score:.3f}", measured.scores)
            for c in tried_in(best, scale=1.0)
            for measured in [measure(c.program, task.val, task)]
        ]
        return SearchResult(max(tried, key=lambda c: c.score or 0.0).program, tried)


class InferRulesKnobs(BootstrapKnobs):
    """Knobs of `infer_rules`."""

    candidates: int = Field(3, ge=1, le=50, description="sets of rules tried")
    rules: int = Field(5, ge=1, le=50, description="rules per predictor")
    shown: int = Field(20, ge=1, le=1000, description="questions shown to the prompt model at once")


@OPTIMIZERS.register("infer_rules")
class InferRules(Optimizer):
    """`dspy.InferRules` over a bootstrap, with its best candidate kept."""

    name = "infer_rules"
    description = "rules that a prompt model reads out of training answers, over a bootstrap"
    source = "dspy.InferRules"
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
        search = _InferRules(task, self.knobs)
        best = search.compile(student, trainset=task.trainset, valset=task.valset)
        return SearchResult(best, search.tried)


class _InferRules(dspy.InferRules):
    """DSPy's writes rules into a signature that all its candidates share, so the last one wins."""

    def __init__(self, task: Task, knobs: InferRulesKnobs) -> None:
        super().__init__(
            num_candidates=knobs.candidates, num_rules=knobs.rules, **shot_arguments(knobs, task)
        )
        self.shown = knobs.shown
        self.tried: list[Candidate] = []
        self.rules_induction_program.teacher_settings = {"lm": task.writer}
        self.rules_induction_program.rng = random.Random(task.seed)

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if natural_language_rules:
            predictor.signature = predictor.signature.append_instructions(
                "Please adhere to the following rules when making your prediction:\n"
                f"{natural_language_rules}"
            )

    def induce_natural_language_rules(self, predictor: Any, trainset: Any) -> str:
        """Rules from at most `shown` examples, fewer if they do not fit; none if none do."""
        demos = self.get_predictor_demos(trainset[: self.shown], predictor)
        while demos:
            try:
                examples = self.format_examples(demos, predictor.signature)
                return str(self.rules_induction_program(examples))
            except (LMError, AdapterParseError) as error:
                logger.warning("no rules from %d examples: %s", len(demos), error)
                demos = demos[: len(demos) // 2]
        return ""

    def evaluate_program(self, program: Any, dataset: Any) -> float:
        score = float(super().evaluate_program(program, dataset))
        note = f"rules {len(self.tried) + 1}"
        self.tried.append(Candidate(cast(RAGProgram, program.deepcopy()), score / 100, note))
        return score
