"""Chains: optimizers in sequence, such as `bootstrap -> mipro`.

Each step starts from the result of the previous one, with its instructions and demonstrations. The
best result on the validation questions is selected, the earliest if tied. This is the part of
`dspy.BetterTogether` that changes prompts (Soylu et al. 2024, arXiv:2407.10930). The other part
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


class OptimizerPipeline(Optimizer):
    """Several optimizers, each of which starts from the result of the previous one."""

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
        """Values that determine the result, with the parameters of each step."""
        knobs = {**shown(self.knobs), "steps": [step.identity for step in self.parts]}
        return {**super().identity, "knobs": knobs}

    def estimate(self, size: Size) -> Budget | None:
        """Return the total cost of all steps, with a validation of each result."""
        total = Budget()
        for step in self.parts:
            budget = step.estimate(size)
            if budget is None:
                return None
            validation = Budget(student_runs=Range(0, size.n_val))
            total = total.plus(budget).plus(validation)
        return total

    def check(self, size: Size) -> None:
        """Check every step, which raises ConfigError if there are too few questions."""
        super().check(size)
        for step in self.parts:
            step.check(size)

    def search(self, student: RAGProgram, task: Task) -> SearchResult:
        """Run the steps and return the best of their results."""
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

    #: True: shuffle the training questions for each step after the first.
    shuffles: ClassVar[bool] = False


@lru_cache(maxsize=64)
def chain_of(name: str) -> type[Optimizer]:
    """Return the chain called `name`, such as `bootstrap -> mipro`.

    Raises:
        UnknownNameError: There is no optimizer with the name of a step.
        ConfigError: A step stores files next to the program, which other steps do not read.
    """
    steps = tuple(step.strip() for step in name.split(ARROW))
    needs = Needs()
    for step in steps:
        kind = OPTIMIZERS.get(step)
        if kind.use.__func__ is not Optimizer.use.__func__:  # type: ignore[attr-defined]
            raise ConfigError(f"{step} cannot be a step of a chain: it saves more than prompts")
        needs = needs.plus(kind.needs)
    members = {"name": f" {ARROW} ".join(steps), "steps": steps, "needs": needs}
    return cast(type[Optimizer], type("NamedChain", (OptimizerPipeline,), members))


class BetterTogetherKnobs(OptimizerKnobs):
    """Parameters of `better_together`."""

    strategy: str = Field("random_search -> random_search", description="optimizers in order")


@OPTIMIZERS.register("better_together")
class BetterTogether(OptimizerPipeline):
    """The prompt steps of `dspy.BetterTogether`: p -> p of its p -> w -> p."""

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
