"""Repeats of a run: one folder `r1`, `r2`, ... for each repeat, pooled by readers.

Each repeat is a separate run. Its number is part of its identity, its seeds and its cached replies.
The first repeat equals the plain run and shares the cache with it. All repeats share the index.
"""

from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import is_run, repeats_in


def repeat_configs(config: RunConfig, repeats: int) -> list[RunConfig]:
    """Return the config of each repeat, starting with the repeat of `config`.

    Args:
        config: The run. Its `out` is the folder of all repeats.
        repeats: Number of repeats, >= 1. With 1, the result is `config` itself.

    Raises:
        RunError: The folder has a single run and repeats were requested, or the reverse.
    """
    if repeats == 1:
        if config.out and repeats_in(config.out):
            raise RunError(f"{config.out} holds repeats; give --repeats, or another --out")
        return [config]
    folder = config.out or Path("runs") / f"{config.but(repeat=1).name()}-repeats"
    if is_run(folder):
        raise RunError(f"{folder} holds a single run; give --repeats another --out")
    configs = []
    for number in range(config.repeat, config.repeat + repeats):
        configs.append(config.but(repeat=number, out=folder / f"r{number}"))
    return configs


def evaluate_repeats(
    config: RunConfig,
    repeats: int,
    *,
    like: RunContext | None = None,
    watch: ProgressListener = SILENT,
) -> list[Evaluation]:
    """Run or continue every repeat of a run. Stop after a repeat that reached a limit.

    Args:
        config: Config of the run.
        repeats: Number of repeats.
        like: Context whose data and retriever are reused if they are the same.
        watch: Listener of progress.
    """
    evaluations: list[Evaluation] = []
    title = None
    for repeat_config in repeat_configs(config, repeats):
        run_context = ready(repeat_config, like=like)
        like = like or run_context
        if repeats > 1:
            title = f"repeat {len(evaluations) + 1} of {repeats}"
        evaluations.append(run(run_context, watch=watch, title=title))
        if evaluations[-1].stopped_by:
            break
    return evaluations
