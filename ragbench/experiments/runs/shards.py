"""Runs over several processes, or over the nodes of a Ray cluster.

Each process runs a part of the questions, a shard, with an equal share of the remaining limits. It
sends its transactions to the command's process, which commits them. The command's process runs
the questions that are left, because a shard died or used up its share.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import dspy
from pydantic import BaseModel

from ragbench import user_code
from ragbench.errors import ConfigError, needs_extra
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.processes import ShardProcesses, take_processes
from ragbench.experiments.runs.shard_process import Job, Message, stream_shard
from ragbench.experiments.store import Store
from ragbench.lms.calls import Limits, active, room, stop
from ragbench.logs import get_level
from ragbench.paths import cache_root
from ragbench.programs import PROGRAMS
from ragbench.record import Record

#: Grace period in seconds for shards to end after a stop.
_ENDING_S = 5.0


def is_spread(config: RunConfig) -> bool:
    """Return True if the run uses shards."""
    return config.engine == "ray" or config.processes > 1


def check_spread(config: RunConfig) -> None:
    """Check that the questions can run in other processes, if the config asks for that.

    With `--engine ray` this process joins the cluster.

    Raises:
        ConfigError: The LM or the program only works in this process, or there is no cluster.
        MissingExtraError: Ray is not installed.
    """
    if not is_spread(config):
        return
    option = "--engine" if config.engine == "ray" else "--processes"
    for spec in (config.lm, *config.lm_for.values()):
        if spec.partition(":")[0] == "local":
            raise ConfigError(f"The local model {spec} serves one process; leave {option} out")
    if config.program not in PROGRAMS.names() and not user_code.is_external(config.program):
        raise ConfigError(f"A program object stays in this process; leave {option} out")
    if config.engine == "ray":
        _join_cluster()


def ask_in_shards(
    run_context: RunContext,
    todo: Sequence[dspy.Example],
    store: Store,
    on_record: Callable[[Record], None],
) -> list[dspy.Example]:
    """Run `todo` in shards and commit the transactions that they send.

    Args:
        run_context: The run.
        todo: Questions to run.
        store: Store of the run.
        on_record: The receiver of each finished record.

    Returns:
        The questions without a record: a shard died, or reached its share of the limits.

    Raises:
        RunError: A record cannot be written.
        KeyboardInterrupt: The user stopped the command. All shards are stopped.
    """
    jobs = _jobs(run_context.config, store.card, [example.qid for example in todo])
    shards: ShardProcesses | _RayTasks
    shards = _RayTasks() if run_context.config.engine == "ray" else take_processes(len(jobs))
    asked = set[str]()

    def follow(job: Job) -> None:
        for message in shards.run(job):
            match message:
                case "call", call:
                    for limit in active():
                        limit.count([call])
                case "commit", statements, durable:
                    store.run(*statements, durable=durable)
                case "record", record:
                    asked.add(record.qid)
                    on_record(record)
                case "error", error:
                    stop(error, by="an error of a shard")

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(copy_context().run, follow, job) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            shards.stop()
            wait(futures, timeout=_ENDING_S)
            shards.stop(force=True)
    return [example for example in todo if example.qid not in asked]


def _jobs(config: RunConfig, card: BaseModel | None, qids: Sequence[str]) -> list[Job]:
    """Divide `qids`, the threads, the rates and the remaining limits among the shards."""
    count = config.processes
    if config.engine == "ray":
        count = max(count, _nodes())
    bounds = (count, config.workers, len(qids), room().calls, config.rpm or math.inf)
    count = int(max(1, min(bounds)))
    fields: dict[str, Any] = {"out": config.folder(), "processes": 1, "engine": "local"}
    for name in ("rpm", "tpm"):
        if rate := getattr(config, name):
            fields[name] = max(1, int(rate / count))
    common = (_share(count), card, user_code.allowed(), tuple(sys.path), get_level())
    jobs = []
    for number in range(count):
        own = config.but(workers=len(range(number, config.workers, count)), **fields)
        jobs.append(Job(own, frozenset(qids[number::count]), *common))
    return jobs


def _share(count: int) -> Limits:
    """Return an equal share of the remaining budget, with all of the remaining time."""
    minutes = min((limit.seconds_left() / 60 for limit in active()), default=math.inf)
    shares: dict[str, Any] = {"minutes": minutes}
    for name, amount in vars(room()).items():
        shares[name] = amount / count
    return Limits(**{name: left for name, left in shares.items() if left < math.inf})


class _RayTasks:
    """Shards on the nodes of the Ray cluster."""

    def __init__(self) -> None:
        import ray

        self._ray = ray
        self._tasks: list[Any] = []

    def run(self, job: Job) -> Iterator[Message]:
        """Run `job` on a node and yield its messages until it ends."""
        environment = {"env_vars": {"RAGBENCH_CACHE": str(cache_root())}}
        task = (
            self._ray.remote(stream_shard)
            .options(
                num_cpus=1, max_retries=0, num_returns="streaming",
                scheduling_strategy="SPREAD", runtime_env=environment,
            )
            .remote(job)
        )  # fmt: skip
        self._tasks.append(task)
        with suppress(self._ray.exceptions.RayError):  # its node died
            for reference in task:
                yield self._ray.get(reference)

    def stop(self, *, force: bool = False) -> None:
        """Let the shards end their running calls, or kill them."""
        for task in self._tasks:
            self._ray.cancel(task, force=force)


def _join_cluster() -> None:
    """Make this process part of the cluster that runs here, or that RAY_ADDRESS names."""
    with needs_extra("--engine ray"):
        import ray
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"--engine ray: no cluster at {address} ({str(error).splitlines()[0]}); start one by "
            "`ray start --head`, or set RAY_ADDRESS to its address"
        ) from None


def _nodes() -> int:
    """Count the nodes of the cluster that accept tasks."""
    import ray

    return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
