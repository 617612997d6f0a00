"""What is to be compiled, all of it checked before anything is spent, and what it is to take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy

from ragbench.data import for_optimizer
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import PROGRAM, SIDECAR, DataCard, data_card
from ragbench.experiments.config import CompileConfig, RunConfig, plain_name
from ragbench.experiments.estimates import (
    ASKED_TWICE,
    Estimate,
    Spend,
    each_of,
    in_all,
    most_tries,
    rehearse_questions,
)
from ragbench.experiments.runs import RunContext, build, lm_of
from ragbench.experiments.store import is_claimed, write_json
from ragbench.optimizers import OPTIMIZERS, Budget, Optimizer, OwnMetric, Size, make_scorer
from ragbench.ranges import Range

#: What a compile was asked for; its presence without a sidecar marks an unfinished compile.
ASKED = "compile.json"
#: Tokens that one demonstration adds beside its passages: question, answer and markers.
_DEMO_OVERHEAD = 80


@dataclass(frozen=True)
class Plan:
    """All that a compile needs, checked, before anything is spent."""

    run_context: RunContext
    settings: CompileConfig
    optimizer: Optimizer
    train: Sequence[dspy.Example]
    val: Sequence[dspy.Example]
    data: DataCard
    folder: Path
    prompt_lm: dspy.LM | None
    teacher: dspy.LM | None

    @property
    def size(self) -> Size:
        """What the optimizer's budget depends on."""
        return Size(len(self.run_context.program.predictors()), len(self.train), len(self.val))

    def asked(self) -> dict[str, Any]:
        """Everything that decides the result, JSON-ready; a folder holds one such compile."""
        scorer = make_scorer(self.settings.metric)
        return {
            "config": self.run_context.config.identity(),
            "optimizer": {
                "name": self.optimizer.name,
                "preset": self.optimizer.preset,
                "knobs": self.optimizer.knobs.model_dump(mode="json"),
                "seed": self.settings.optimizer_seed,
                "metric": self.settings.metric,
                **({"metric_sha256": scorer.digest} if isinstance(scorer, OwnMetric) else {}),
            },
            "lms": {
                "student": self.run_context.lm.model,
                "teacher": self.teacher.model if self.teacher else None,
                "prompt": self.prompt_lm.model if self.prompt_lm else None,
                "adapter": type(self.run_context.adapter).__name__,
            },
            "data": self.data.model_dump(mode="json"),
        }


def make_plan(
    config: RunConfig, settings: CompileConfig, *, like: RunContext | None = None
) -> Plan:
    """Check everything and put it together; asks no LM.

    Data and retriever are shared with `like` where that is of the same ones.
    """
    if config.compiled is not None:
        raise ConfigError("compile starts from a program as it is; leave --compiled out")
    if config.policy is not None:
        raise ConfigError("a router has no prompts of its own to compile; leave --policy out")
    if config.form or config.votes > 1:
        raise ConfigError("compile starts from a program as it is; leave form and votes out")
    optimizer = OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)
    scorer = make_scorer(settings.metric)
    folder = compile_folder(config, settings)
    config = _of_training(config, settings)
    run_context = build(config, like=like)
    val = run_context.dataset.splits.get("validation", ())[: settings.val_limit]
    if not val:
        raise ConfigError(
            f"{run_context.dataset.name} has no validation questions, on which compiled programs "
            "are chosen"
        )
    if isinstance(scorer, OwnMetric):
        scorer.check(for_optimizer(val)[0])
    train = run_context.examples
    data = data_card(run_context.dataset.name, run_context.dataset.digest, train, val)
    plan = Plan(
        run_context=run_context,
        settings=settings,
        optimizer=optimizer,
        train=train,
        val=val,
        data=data,
        folder=folder,
        prompt_lm=lm_of(config, settings.prompt_lm) if settings.prompt_lm else None,
        teacher=lm_of(config, settings.teacher) if settings.teacher else None,
    )
    optimizer.check(plan.size)
    return plan


def claim(plan: Plan) -> bool:
    """Whether the folder holds the finished compile; marks it as this one's if it is new.

    Raises:
        RunError: it holds another compile.
    """
    asked, path = plan.asked(), plan.folder / ASKED
    if is_claimed(path, asked, "a compile"):
        return (plan.folder / SIDECAR).is_file()
    if (plan.folder / PROGRAM).exists() or (plan.folder / SIDECAR).exists():
        raise RunError(f"{plan.folder} has a program but no {ASKED}; give another --out")
    write_json(path, asked)
    return False


def compile_folder(config: RunConfig, settings: CompileConfig) -> Path:
    """Where the compiled program goes."""
    return settings.out or Path("compiled") / folder_name(_of_training(config, settings), settings)


def _of_training(config: RunConfig, settings: CompileConfig) -> RunConfig:
    # The run's own fields for choosing questions are of no use here, so they must not count.
    return config.but(split="train", limit=settings.train_limit, out=None)


def folder_name(config: RunConfig, settings: CompileConfig) -> str:
    """The folder name of a compile: program, optimizer, and a hash of all that decides it."""
    optimizer = OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)
    asked = settings.model_dump(mode="json", exclude={"out"})
    asked["opt_set"] = optimizer.knobs.model_dump(mode="json")
    program = plain_name(config.program)
    stem = config.name(asked).removeprefix(f"{program}-")
    return f"{program}-{settings.optimizer}-{stem}".replace("-train-", "-")


def estimate_compile(plan: Plan) -> Estimate:
    """What the compile takes, the scores before and after included; asks no server.

    Calls and tokens of a run are those of the rehearsal; the upper bounds have every demonstration
    that the optimizer may add to each call.

    Raises:
        RunError: the program cannot be rehearsed.
    """
    optimizer, size = plan.optimizer, plan.size
    search, both = optimizer.estimate(size), Range.exactly(2 * size.n_val)  # before it and after
    budget = Budget(search.teacher_runs, search.student_runs + both, search.prompt_calls)
    retry, runs, prompts = most_tries(plan.run_context), budget.runs, budget.prompt_calls
    run = rehearse_questions(plan.run_context, plan.val)
    calls = Range(round(run.low.calls), round(run.high.calls))
    names = ("bootstrapped", "labeled", "demos", "k")
    most = max((int(getattr(optimizer.knobs, name, 0)) for name in names), default=0)
    a_demo = int(optimizer.knobs.demo_context_tokens) + _DEMO_OVERHEAD if most else 0
    tokens = calls.high * most * a_demo
    price = plan.run_context.lm.pricing.cost(tokens, 0)
    demos = Spend(tokens=tokens, cost=math.inf if price is None else price)
    notes = [
        f"program runs: {runs}, that is {optimizer.formula}, and 2 x V to score before and after",
        f"LM calls of one run: {calls}",
    ]
    if retry > 1:
        notes.append(ASKED_TWICE)
    if prompts != Range():
        notes.append(f"tokens and cost are without those of {prompts} calls that write "
                     "instructions")  # fmt: skip
    title = (
        f"{optimizer.name} ({optimizer.preset}): {size.n_train} training and {size.n_val} "
        f"validation questions, {size.n_predictors} predictor{'s' * (size.n_predictors != 1)}"
    )
    longest = replace(run, high=each_of(sum, (run.high, demos)))
    programs = longest.times(runs.low, (runs.low + runs.high) / 2, runs.high, tries=retry)
    middle = Spend((prompts.low + prompts.high) / 2)
    written = Estimate("", Spend(prompts.low), middle, Spend(prompts.high))
    return in_all(title, [programs, written], notes)
