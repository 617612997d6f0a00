"""Demonstrations: labelled questions, the program's right answers, and a search over the latter.

Bootstrapping is DSPy's (Khattab et al. 2023, arXiv:2310.03714).
"""

from typing import Any, ClassVar, Literal, cast

import dspy
from pydantic import Field

from ragbench.optimizers.arguments import Arguments
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs, measure
from ragbench.optimizers.demonstrations import fit_demos, is_whole, one_call_per_predictor
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range

#: DSPy's argument names of a bootstrap -> parameter names.
SHOT_NAMES = {
    "max_bootstrapped_demos": "bootstrapped",
    "max_labeled_demos": "labeled",
    "max_rounds": "rounds",
}


class LabeledKnobs(OptimizerKnobs):
    """Parameters of `labeled`."""

    labeled: int = Field(8, ge=1, le=100, description="demonstrations per predictor")


@OPTIMIZERS.register("labeled")
class Labeled(Optimizer):
    """`dspy.LabeledFewShot`. Affects only predictors whose outputs are in the data (`answer`)."""

    name = "labeled"
    description = "questions and answers as demonstrations, chosen by seed; no LM call"
    sees = "no call of a prompt model"
    changes = "demonstrations"
    renamed = {"k": "labeled"}  # noqa: RUF012
    formula = "no program run"
    Knobs = LabeledKnobs
    presets = {"medium": {"labeled": 16}, "heavy": {"labeled": 32}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        return Budget()

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        few_shot = dspy.LabeledFewShot(**self.arguments())
        labelled = few_shot.compile(student, trainset=task.trainset, sample=False)
        without = []
        for name, predictor in labelled.named_predictors():
            if not any(is_whole(demo, predictor.signature) for demo in predictor.demos):
                without.append(name)
        return SearchResult(labelled, notes={"no_demonstrations_for": without})


class DemoKnobs(OptimizerKnobs):
    """Parameters of all optimizers that bootstrap demonstrations."""

    bootstrapped: int = Field(4, ge=1, le=64, description="demonstrations from right answers")
    labeled: int = Field(4, ge=0, le=64, description="demonstrations in all, with labelled ones")
    loop_steps: Literal["turns", "coin"] = Field(
        "turns",
        description="the call shown of a predictor that a run calls often: the first, the last, "
        "the second and so on in turns, or by the coin of DSPy, half the time the last",
    )


class BootstrapKnobs(DemoKnobs):
    """Parameters of `bootstrap` and other optimizers that may retry a question."""

    rounds: int = Field(1, ge=1, le=10, description="attempts per question, the later ones sampled")


@OPTIMIZERS.register("bootstrap")
class Bootstrap(Optimizer):
    """`dspy.BootstrapFewShot`. Runs training questions until enough answers are exact."""

    name = "bootstrap"
    description = "demonstrations from training questions that the program answers exactly"
    source = "arXiv:2310.03714"
    sees = "no call of a prompt model"
    changes = "demonstrations"
    renamed = SHOT_NAMES
    formula = "between min(bootstrapped, T) and T x rounds program runs"
    needs = Needs(teacher=True)
    Knobs = BootstrapKnobs
    presets = {  # noqa: RUF012
        "medium": {"bootstrapped": 8, "labeled": 8, "rounds": 2},
        "heavy": {"bootstrapped": 16, "labeled": 16, "rounds": 3},
    }

    def estimate(self, size: Size) -> Budget:
        """Return the cost range of one bootstrap: all questions succeed at once, or none."""
        return Budget(teacher_runs=bootstrap_runs(self.knobs, size.n_train))

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        few_shot = dspy.BootstrapFewShot(**teaching(self.knobs, task), **self.arguments())
        return SearchResult(few_shot.compile(student, trainset=task.trainset))


class RandomSearchKnobs(BootstrapKnobs):
    """Parameters of `random_search`."""

    candidates: int = Field(4, ge=1, le=100, description="shuffled bootstraps tried")


@OPTIMIZERS.register("random_search")
class RandomSearch(Optimizer):
    """`dspy.BootstrapFewShotWithRandomSearch`. Also tries zero-shot and labelled ones."""

    name = "random_search"
    description = "several bootstraps, zero-shot and labelled demonstrations; the best of them"
    source = "arXiv:2310.03714"
    sees = "no call of a prompt model"
    changes = "demonstrations"
    renamed = SHOT_NAMES | {"num_candidate_programs": "candidates"}
    formula = (
        "(candidates + 3) x V program runs, and (candidates + 1) bootstraps of at most "
        "T x rounds runs each"
    )
    needs = Needs(teacher=True)
    Knobs: ClassVar[type[OptimizerKnobs]] = RandomSearchKnobs
    presets = {"medium": {"candidates": 8}, "heavy": {"candidates": 16}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        """Return the cost of the bootstraps and of a validation per candidate."""
        n = self.knobs.candidates
        shuffled = bootstrap_runs(self.knobs, size.n_train, least=1).times(n)
        return Budget(
            teacher_runs=bootstrap_runs(self.knobs, size.n_train) + shuffled,
            student_runs=Range.exactly((n + 3) * size.n_val),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        search = dspy.BootstrapFewShotWithRandomSearch(
            **teaching(self.knobs, task), **self.arguments()
        )
        return SearchResult(search.compile(student, trainset=task.trainset, valset=task.valset))


class OptunaKnobs(BootstrapKnobs):
    """Parameters of `optuna`."""

    bootstrapped: int = Field(8, ge=1, le=64, description="demonstrations to choose from")
    labeled: int = Field(8, ge=0, le=64, description="the same, filled up with labelled questions")
    trials: int = Field(6, ge=1, le=500, description="choices tried")


@OPTIMIZERS.register("optuna")
class Optuna(Optimizer):
    """`dspy.BootstrapFewShotWithOptuna`, which gives each predictor one demonstration.

    DSPy's version does not seed the sampler, and fails if a predictor has no demonstration.
    """

    name = "optuna"
    description = "one demonstration per predictor, chosen by TPE from a bootstrap on validation"
    sees = "no call of a prompt model"
    changes = "demonstrations"
    renamed = SHOT_NAMES | {"num_candidate_programs": "trials"}
    formula = "trials x V program runs, and one bootstrap of at most T x rounds runs"
    needs = Needs(teacher=True, package="optuna")
    Knobs = OptunaKnobs
    presets = {"medium": {"trials": 12}, "heavy": {"trials": 24}}  # noqa: RUF012

    def estimate(self, size: Size) -> Budget:
        return Budget(
            teacher_runs=bootstrap_runs(self.knobs, size.n_train),
            student_runs=Range.exactly(self.knobs.trials * size.n_val),
        )

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        import optuna

        arguments = self.arguments()
        trials = arguments.pop("num_candidate_programs")
        few_shot = dspy.BootstrapFewShot(**teaching(self.knobs, task), **arguments)
        bank = few_shot.compile(student, trainset=task.trainset)
        choices = {}
        for name, predictor in bank.named_predictors():
            choices[name] = fit_demos(predictor.demos, predictor.signature, max_tokens=None)

        def score(trial: Any) -> float:
            program = cast(RAGProgram, student.reset_copy())
            for name, predictor in program.named_predictors():
                if demos := choices[name]:
                    index = trial.suggest_int(f"demo_index_for_{name}", 0, len(demos) - 1)
                    predictor.demos = [demos[index]]
            trial.set_user_attr("program", program)
            return measure(program, task.val, task).mean

        sampler = optuna.samplers.TPESampler(seed=task.seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(score, n_trials=trials)
        return SearchResult(study.best_trial.user_attrs["program"])


def teaching(knobs: Any, task: Task) -> Arguments:
    """Return the teacher settings and the metric for DSPy's few-shot optimizers.

    Args:
        knobs: Parameters of the optimizer.
        task: The search.
    """
    metric = one_call_per_predictor(task.metric) if knobs.loop_steps == "turns" else task.metric
    return {"metric": metric, "teacher_settings": task.teacher_settings}


def bootstrap_runs(knobs: Any, n_train: int, *, least: int | None = None) -> Range:
    """Return the number of program runs of one bootstrap.

    Args:
        knobs: Parameters, with `bootstrapped` and optionally `rounds`.
        n_train: Number of training questions.
        least: Number of successes that ends the bootstrap. None: `bootstrapped`.
    """
    ends_at = knobs.bootstrapped if least is None else least
    return Range(min(ends_at, n_train), n_train * getattr(knobs, "rounds", 1))
