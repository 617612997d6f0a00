"""Chains: optimizers one after another, such as `bootstrap -> mipro`.

Each step starts from what the one before made, with its instructions and demonstrations, and the
best on the validation questions is kept, of equals the earliest. It is the part of
`dspy.BetterTogether` that changes prompts (Soylu et al. 2024, arXiv:2407.10930); the other part
trains weights.
"""

import math
import random
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, cast

from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.optimizers.arguments import Arguments, shown
from ragbench.optimizers.base import ARROW, OPTIMIZERS, Optimizer, OptimizerKnobs, measure
from ragbench.optimizers.students import bare
from ragbench.optimizers.task import Budget, Needs, SearchResult, Size, Task
from ragbench.programs.core import RAGProgram
from ragbench.ranges import Range


class Chain(Optimizer):
    """Several optimizers, each of which starts from what the one before made."""

    steps: ClassVar[tuple[str, ...]]
    description = "one optimizer after another; the best of all on validation is kept"
    source = "arXiv:2407.10930"
    sees = "what its steps see"
    changes = "what its steps change"
    formula = "the sum of its steps, and V program runs after each"

    def __init__(self, preset: str = "light", **knobs: Any) -> None:
        own: dict[str, Arguments] = {name: {} for name in self.steps}
        shared: Arguments = {}
        for name, value in knobs.items():
            step, dot, knob = name.rpartition(".")
            if not dot:
                shared[name] = value
            elif step in own:
                own[step][knob] = value
            else:
                raise ConfigError(
                    f"optimizer {self.name} has no step {step!r}; its steps: {', '.join(own)}"
                )
        super().__init__(preset, **shared)
        self.parts = []
        for name in self.steps:
            settings = {"demo_context_tokens": self.knobs.demo_context_tokens, **own[name]}
            self.parts.append(OPTIMIZERS.get(name)(preset, **settings))

    @property
    def identity(self) -> Arguments:
        """What decides the result, with the knobs of each step."""
        knobs = {**shown(self.knobs), "steps": [step.identity for step in self.parts]}
        return {**super().identity, "knobs": knobs}

    def estimate(self, size: Size) -> Budget | None:
        """The sum of all steps, and a validation of what each made."""
        total = Budget()
        for step in self.parts:
            budget = step.estimate(size)
            if budget is None:
                return None
            validation = Budget(student_runs=Range(0, size.n_val))
            total = total.plus(budget).plus(validation)
        return total

    def check(self, size: Size) -> None:
        """Raise ConfigError where a step has too few questions."""
        super().check(size)
        for step in self.parts:
            step.check(size)

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """The best of what the steps made."""
        best = -math.inf
        chosen = student
        notes: dict[str, Any] = {}
        shuffled = random.Random(task.seed)
        current = student
        for number, step in enumerate(self.parts):
            if number and self.shuffles:
                order = list(task.train)
                shuffled.shuffle(order)
                task = replace(task, train=order)
            result = step.search(current, task)
            current = bare(result.program)
            mean = task.tally.mean(current)
            if mean is None:
                mean = measure(current, task.val, task).mean
            if mean > best:
                best = mean
                chosen = current
            notes[f"{number + 1} {step.name}"] = {"score": mean, **result.notes}
        return SearchResult(chosen, notes=notes)

    #: Whether the training questions are in another order for each step.
    shuffles: ClassVar[bool] = False


@lru_cache(maxsize=64)
def chain_of(name: str) -> type[Optimizer]:
    """The chain that `name` says, such as `bootstrap -> mipro`.

    Raises:
        UnknownNameError: a step has no such optimizer.
        ConfigError: a step keeps files beside the program, which no other step reads.
    """
    steps = tuple(step.strip() for step in name.split(ARROW))
    needs = Needs()
    for step in steps:
        kind = OPTIMIZERS.get(step)
        if kind.use.__func__ is not Optimizer.use.__func__:  # type: ignore[attr-defined]
            raise ConfigError(f"{step} cannot be a step of a chain: it keeps more than prompts")
        needs = needs.plus(kind.needs)
    members = {"name": f" {ARROW} ".join(steps), "steps": steps, "needs": needs}
    return cast(type[Optimizer], type("NamedChain", (Chain,), members))


class BetterTogetherKnobs(OptimizerKnobs):
    """Knobs of `better_together`."""

    strategy: str = Field("random_search -> random_search", description="optimizers in order")


@OPTIMIZERS.register("better_together")
class BetterTogether(Chain):
    """The part of `dspy.BetterTogether` that changes prompts: p -> p of its p -> w -> p."""

    name = "better_together"
    description = "prompt optimizers in turn, over training questions shuffled between them"
    formula = "the sum of the steps of its strategy, and V program runs after each"
    needs = Needs(prompt_lm=True, teacher=True)
    Knobs = BetterTogetherKnobs
    shuffles = True

    def __init__(self, preset: str = "light", **knobs: Any) -> None:
        default = BetterTogetherKnobs.model_fields["strategy"].default
        strategy = str(knobs.get("strategy") or default)
        self.steps = chain_of(strategy).steps  # type: ignore[attr-defined, misc]
        super().__init__(preset, **knobs)


OPTIMIZERS.chain_of = chain_of
