"""Demonstrations chosen per predictor by Optuna's TPE sampler, from one bootstrap."""

from __future__ import annotations

from typing import Any, cast

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer
from ragbench.optimizers.bootstrap import BootstrapKnobs, bootstrap_runs, few_shot_arguments
from ragbench.optimizers.demos import is_whole
from ragbench.optimizers.task import NEVER, Budget, Candidate, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class OptunaKnobs(BootstrapKnobs):
    """Knobs of `optuna`."""

    bootstrapped: int = Field(8, ge=1, le=64, description="demonstrations to choose from")
    labeled: int = Field(8, ge=0, le=64, description="the same, filled up with labelled questions")
    trials: int = Field(6, ge=1, le=500, description="choices tried")


@OPTIMIZERS.register("optuna")
class Optuna(Optimizer):
    """`dspy.BootstrapFewShotWithOptuna`, seeded; shows each predictor one demonstration."""

    name = "optuna"
    description = "one demonstration per predictor, chosen by TPE from a bootstrap on validation"
    formula = "trials x V program runs, and one bootstrap of at most T x rounds runs"
    needs = Needs(teacher=True, package="optuna")
    Knobs = OptunaKnobs
    presets = {"medium": {"trials": 12}, "heavy": {"trials": 24}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        """One bootstrap and a validation per trial."""
        return Budget(
            teacher_runs=bootstrap_runs(self.knobs, size.n_train),
            student_runs=Range.exactly(self.knobs.trials * size.n_val),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The best trial; the first of equals."""
        arguments = few_shot_arguments(self.knobs)
        search = _Seeded(
            metric=task.metric,
            teacher_settings=task.teacher_settings,
            num_candidate_programs=self.knobs.trials,
            num_threads=task.workers,
            seed=task.seed,
            **arguments,
        )
        best = search.compile(
            student,
            max_demos=arguments["max_bootstrapped_demos"],
            trainset=task.trainset,
            valset=task.valset,
        )
        return SearchResult(best, search.tried)


class _Seeded(dspy.BootstrapFewShotWithOptuna):
    """DSPy's leaves the sampler without a seed, and fails if a predictor got no demonstration."""

    def __init__(self, *, seed: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seed = seed
        self.tried: list[Candidate] = []

    def compile(
        self,
        student: Any,
        *,
        teacher: Any = None,
        max_demos: int,
        trainset: Any,
        valset: Any = None,
    ) -> Any:
        self.trainset, self.valset, self.student = trainset, valset, student.reset_copy()
        few_shot = dspy.BootstrapFewShot(
            metric=self.metric,
            max_bootstrapped_demos=max_demos,
            max_labeled_demos=self.max_labeled_demos,
            teacher_settings=self.teacher_settings,
            max_rounds=self.max_rounds,
            max_errors=NEVER,
        )
        self.bank = few_shot.compile(self.student, trainset=trainset)
        import optuna

        sampler = optuna.samplers.TPESampler(seed=self.seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(self.objective, n_trials=self.num_candidate_sets)
        return self.tried[study.best_trial.number].program

    def objective(self, trial: Any) -> float:
        program = self.student.reset_copy()
        rows = zip(self.bank.named_predictors(), program.predictors(), strict=True)
        for (name, full), predictor in rows:
            demos = [demo for demo in full.demos if is_whole(demo, full.signature)]
            if demos:
                index = trial.suggest_int(f"demo_index_for_{name}", 0, len(demos) - 1)
                predictor.demos = [demos[index]]
        evaluate = dspy.Evaluate(
            devset=self.valset,
            metric=self.metric,
            num_threads=self.num_threads,
            max_errors=NEVER,
        )
        result = evaluate(program)
        score, each = float(result.score), tuple(float(row[2]) for row in result.results)
        note = f"trial {trial.number}"
        self.tried.append(Candidate(cast(RAGProgram, program), score / 100, note, each))
        return score
