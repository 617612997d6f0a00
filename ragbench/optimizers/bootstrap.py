"""Demonstrations from the program's own right answers (Khattab et al. 2023, arXiv:2310.03714)."""

from __future__ import annotations

from typing import Any

import dspy
from pydantic import Field

from ragbench.optimizers.base import OPTIMIZERS, Optimizer, OptimizerKnobs
from ragbench.optimizers.task import NEVER, Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class DemoKnobs(OptimizerKnobs):
    """Knobs of all that bootstrap demonstrations."""

    bootstrapped: int = Field(4, ge=1, le=64, description="demonstrations from right answers")
    labeled: int = Field(
        4, ge=0, le=64, description="demonstrations in all, filled up with labelled questions"
    )


class BootstrapKnobs(DemoKnobs):
    """Knobs of `bootstrap`, and of those that may try a question more than once."""

    rounds: int = Field(
        1, ge=1, le=10, description="attempts per question; later ones sample at temperature 1"
    )


@OPTIMIZERS.register("bootstrap")
class Bootstrap(Optimizer):
    """`dspy.BootstrapFewShot`: runs training questions until enough were answered exactly."""

    name = "bootstrap"
    description = "demonstrations from training questions that the program answers exactly"
    source = "arXiv:2310.03714"
    formula = "between min(bootstrapped, T) and T x rounds program runs"
    needs = Needs(teacher=True)
    Knobs = BootstrapKnobs
    presets = {  # noqa: RUF012
        "medium": {"bootstrapped": 8, "labeled": 8, "rounds": 2},
        "heavy": {"bootstrapped": 16, "labeled": 16, "rounds": 3},
    }

    def estimate(self, size: Size) -> Budget:
        """One bootstrap, in which all or none of the questions may succeed at once."""
        return Budget(teacher_runs=bootstrap_runs(self.knobs, size.n_train))

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """One pass over the training questions."""
        few_shot = dspy.BootstrapFewShot(
            metric=task.metric,
            teacher_settings=task.teacher_settings,
            max_errors=NEVER,
            **few_shot_arguments(self.knobs),
        )
        return SearchResult(few_shot.compile(student, trainset=task.trainset))


def few_shot_arguments(knobs: Any) -> dict[str, Any]:
    """The knobs under the names that DSPy gives them."""
    return {
        "max_bootstrapped_demos": knobs.bootstrapped,
        "max_labeled_demos": knobs.labeled,
        "max_rounds": knobs.rounds,
    }


def bootstrap_runs(knobs: Any, n_train: int, *, least: int | None = None) -> Range:
    """Program runs of one bootstrap that ends at `least` successes, by default `bootstrapped`."""
    wanted = knobs.bootstrapped if least is None else least
    return Range(min(wanted, n_train), n_train * getattr(knobs, "rounds", 1))
