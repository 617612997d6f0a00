"""Whether, and over which worker processes, the questions of a run are spread."""

from __future__ import annotations

import sys

from ragbench.errors import ConfigError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.context import RunContext, models_in_process
from ragbench.experiments.runs.spread.pool import WorkerProcesses
from ragbench.lms.calls import HostedClient


def check_spread(run_context: RunContext) -> None:
    """Do nothing if the questions can be spread as the config asks, or are not to be.

    With `--engine ray` this process joins the cluster.

    Raises:
        ConfigError: they cannot.
        MissingExtraError: Ray is not installed.
    """
    config = run_context.config
    if config.engine == "local" and config.processes == 1:
        return
    given = "--engine ray" if config.engine == "ray" else f"--processes {config.processes}"
    cure = f"leave {given.split()[0]} out"
    if config.engine == "local" and sys.platform != "linux":
        raise ConfigError(f"{given} works on Linux alone; {cure}, or run shards (--shard)")
    for lm in (run_context.lm, *run_context.role_lms.values()):
        if not isinstance(lm.metered.client, HostedClient):
            raise ConfigError(
                f"{given} asks HTTP servers alone; {lm.model} is a local model or goes through "
                f"LiteLLM: {cure}"
            )
    for model in models_in_process(run_context.retriever):
        raise ConfigError(
            f"{given} cannot share {model}, which computes in threads of this process; {cure}"
        )
    if config.engine == "ray":
        from ragbench.experiments.runs.spread.cluster import join

        join()


def processes_of(config: RunConfig, threads: int) -> WorkerProcesses | None:
    """The worker processes that so many threads are spread over; None for this one alone."""
    if config.engine == "ray":
        from ragbench.experiments.runs.spread.cluster import RayTasks, nodes

        return RayTasks(_shares(threads, max(config.processes, nodes())))
    from ragbench.experiments.runs.spread.forks import Forks

    processes = min(config.processes, threads)
    return Forks(_shares(threads, processes)) if processes > 1 else None


def _shares(threads: int, n: int) -> list[int]:
    """How many of `threads` each of at most `n` workers has."""
    return [len(range(i, threads, n)) for i in range(min(n, threads))]
