"""The questions of a run asked again: a folder `r1`, `r2`, ... for each repeat, pooled by readers.

Each repeat is a run of its own, whose identity has its number, with seeds and cached replies of its
own; the first is the plain run and shares the cache with it. The index is one for all of them.
"""

from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import is_run, repeats_in
from ragbench.experiments.watch import SILENT, Watch


def repeat_configs(config: RunConfig, repeats: int) -> list[RunConfig]:
    """The config of each repeat, from that of `config` on; of a single one it is `config` itself.

    Raises:
        RunError: the folder holds a single run, or repeats, and the other was asked for.
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
    config: RunConfig, repeats: int, *, like: RunContext | None = None, watch: Watch = SILENT
) -> list[Evaluation]:
    """Run every repeat of `config`, or continue them; ends with one that a limit stopped."""
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
