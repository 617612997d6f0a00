"""The plan of a compile: all that it needs, checked before anything is spent, and its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from ragbench import optimizers
from ragbench.data import for_optimizer
from ragbench.errors import ConfigError, RunError
from ragbench.experiments import artifacts, store
from ragbench.experiments.config import CompileConfig, RunConfig, plain_name, server_of
from ragbench.experiments.runs.context import RunContext, build, lm_of
from ragbench.external import label_of

#: Settings of a compile. Without a sidecar next to it, the compile is unfinished.
ASKED = "compile.json"


@dataclass(frozen=True)
class Plan:
    """Checked inputs of a compile, made before anything is spent."""

    run_context: RunContext
    settings: CompileConfig
    optimizer: optimizers.Optimizer
    train: Sequence[dspy.Example]
    val: Sequence[dspy.Example]
    data: artifacts.DataCard
    folder: Path
    prompt_lm: dspy.LM | None
    teacher: dspy.LM | None

    @property
    def size(self) -> optimizers.Size:
        """Quantities that determine the optimizer's budget."""
        return optimizers.Size(
            len(self.run_context.program.predictors()), len(self.train), len(self.val)
        )

    def asked(self) -> dict[str, Any]:
        """Return everything that determines the result, JSON-ready. A folder has one compile."""
        optimizer = {
            **self.optimizer.identity,
            "seed": self.settings.optimizer_seed,
            "metric": self.settings.optimizer_metric,
        }
        scorer = optimizers.make_scorer(self.settings.optimizer_metric)
        if isinstance(scorer, optimizers.OwnMetric):
            optimizer["metric_sha256"] = scorer.digest
        return {
            "config": self.run_context.config.identity(),
            "optimizer": optimizer,
            "lms": {
                "student": self.run_context.lm.metered.identity,
                "teacher": self.teacher.metered.identity if self.teacher else None,
                "prompt": self.prompt_lm.metered.identity if self.prompt_lm else None,
                "adapter": type(self.run_context.adapter).__name__,
            },
            "data": self.data.model_dump(mode="json"),
        }


def make_plan(
    config: RunConfig, settings: CompileConfig, *, like: RunContext | None = None
) -> Plan:
    """Check the inputs of a compile and build its plan. Calls no LM.

    Args:
        config: The run.
        settings: The compile.
        like: Earlier context. Its data and retriever are reused if `config` has the same ones.

    Raises:
        RagbenchError: The settings, the data or the optimizer do not fit.
    """
    if config.compiled is not None:
        raise ConfigError("compile needs an uncompiled program; leave --compiled out")
    if config.form or config.votes > 1:
        raise ConfigError("compile needs an unchanged program; leave form and votes out")
    optimizer = make_optimizer(settings)
    scorer = optimizers.make_scorer(settings.optimizer_metric)
    folder = compile_folder(config, settings)
    config = _of_training(config, settings)
    run_context = build(config, like=like)
    val = run_context.dataset.splits.get("validation", ())[: settings.val_limit]
    if not val:
        raise ConfigError(
            f"{run_context.dataset.name} has no validation questions, on which compiled programs "
            "are chosen"
        )
    if isinstance(scorer, optimizers.OwnMetric):
        scorer.check(for_optimizer(val)[0])
    train = run_context.examples
    data = artifacts.data_card(run_context.dataset.name, run_context.dataset.digest, train, val)
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


def make_optimizer(settings: CompileConfig) -> optimizers.Optimizer:
    """Build the optimizer of `settings`.

    Raises:
        RagbenchError: The optimizer or one of its options does not exist.
    """
    return optimizers.OPTIMIZERS.get(settings.optimizer)(settings.preset, **settings.opt_set)


def claim(plan: Plan) -> bool:
    """Return True if the folder has this compile, finished. Marks a new folder."""
    identity = plan.asked()
    path = plan.folder / ASKED
    if store.is_claimed(path, identity, "a compile"):
        return (plan.folder / artifacts.SIDECAR).is_file()
    if (plan.folder / artifacts.PROGRAM).exists() or (plan.folder / artifacts.SIDECAR).exists():
        raise RunError(f"{plan.folder} has a program but no {ASKED}; give another --out")
    store.write_json(path, identity)
    return False


def compile_folder(config: RunConfig, settings: CompileConfig) -> Path:
    """Return the output folder of the compile.

    Args:
        config: Config of the run.
        settings: Settings of the compile.
    """
    return settings.out or Path("compiled") / folder_name(_of_training(config, settings), settings)


def _of_training(config: RunConfig, settings: CompileConfig) -> RunConfig:
    # The run's own fields for choosing questions are of no use here, so they must not count.
    return config.but(split="train", limit=settings.train_limit, out=None)


def folder_name(config: RunConfig, settings: CompileConfig) -> str:
    """Return the folder name of a compile: program, optimizer and a hash of the settings.

    Args:
        config: Config of the run.
        settings: Settings of the compile.
    """
    identity = settings.model_dump(mode="json", exclude={"out", "opt_set"})
    identity["opt_set"] = make_optimizer(settings).identity
    for name in ("teacher", "prompt_lm"):
        identity[name] = server_of(identity[name]) if identity[name] else None
    program, dash, stem = config.name(identity).partition("-")
    optimizer = plain_name(label_of(settings.optimizer))[-40:]
    return f"{program}-{optimizer}{dash}{stem}".replace("-train-", "-")
