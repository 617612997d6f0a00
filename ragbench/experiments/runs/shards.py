"""A run over several processes, or over the nodes of a Ray cluster.

Each asks its part of the questions, a shard: a run of its own in a folder below that of the whole
run, under an equal share of what may still be spent. It sends each record as it comes. When all
have ended, or when the command is given again, the shards are put into the whole run; what their
shares left unspent is for the command's own process, which asks what is left.

The nodes of a cluster share a file system: the run's folder and the cache are on it.
"""

import math
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ragbench import __version__, user_code
from ragbench.errors import ConfigError, LMUnavailableError, RunError, needs_extra
from ragbench.experiments.config import RunConfig, differing
from ragbench.experiments.runs.card import card_for
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.spend import spent_under
from ragbench.experiments.store import RunCard, held, merge_databases, read_card, runs_under
from ragbench.lms.calls import Amount, Limits, active, room, stop
from ragbench.logs import LOG, get_level
from ragbench.paths import cache_root
from ragbench.programs import PROGRAMS
from ragbench.record import Record

#: Below the folder of a run, where its shards are.
SHARDS = "shards"
#: Seconds that shards have to end by themselves when they were told to stop.
ENDING_S = 5.0
#: How often a shard is begun whose process or node dies.
_TRIES = 2
#: The module that asks a shard in a process of its own.
_PROCESS = "ragbench.experiments.runs.shard_process"


@dataclass(frozen=True)
class Job:
    """What a process needs to ask a shard; `allowed` names the user's code.

    `limits` are of all that is spent in the shard's folder, by earlier processes too.
    """

    config: RunConfig
    limits: Limits
    allowed: Sequence[str]
    path: Sequence[str]
    log_level: str
    version: str = __version__


@dataclass(frozen=True)
class Ended:
    """The last that a shard sends: the error that ended it, if one did."""

    error: Exception | None = None


def is_spread(config: RunConfig) -> bool:
    """Whether the questions are to be asked in shards."""
    return config.engine == "ray" or config.processes > 1


def check_spread(config: RunConfig) -> None:
    """Do nothing if the questions can be asked in other processes, or need not be.

    With `--engine ray` this process joins the cluster.

    Raises:
        ConfigError: they cannot.
        MissingExtraError: Ray is not installed.
    """
    if not is_spread(config):
        return
    given = "--engine ray" if config.engine == "ray" else f"--processes {config.processes}"
    cure = f"leave {given.split()[0]} out"
    for spec in (config.lm.model, *config.lm.roles.values()):
        if spec.partition(":")[0] == "local":
            raise ConfigError(f"{given}: the local model {spec} serves one process; {cure}")
    names = {*PROGRAMS.names(), "router"}
    if config.program not in names and not user_code.is_external(config.program):
        raise ConfigError(f"{given}: a program given as an object stays in this process; {cure}")
    if config.engine == "ray":
        _join_cluster()


def ask_in_shards(run_context: RunContext, n: int, on_record: Callable[[Record], None]) -> set[str]:
    """Ask what the run has not answered, `n` questions, in shards, and put them into the run.

    Gives the questions that came to an end; a share of the limits may not have held the others.

    Raises:
        RagbenchError: a shard failed; what was recorded is in the run.
        KeyboardInterrupt: the user stopped it; so it is then.
    """
    config, left, asked = run_context.config, room(), set[str]()
    folder = config.folder()

    def on_asked(record: Record) -> None:
        asked.add(record.qid)
        on_record(record)

    configs = _configs(config, min(n, left.calls))
    about = (user_code.allowed(), tuple(sys.path), get_level())
    jobs = [Job(each, _share(left, len(configs)), *about) for each in configs]
    try:
        ended = _ask_all(jobs, _in_cluster if config.engine == "ray" else _in_process, on_asked)
    finally:
        if any(one.limits for one in active()):
            took = spent_under(folder / SHARDS)
            for one in active():
                one.total += took
        collect(folder, card_for(folder, run_context))
    for number, each in enumerate(ended, 1):
        if each is None:
            raise RunError(
                f"the process of shard {number} was killed {_TRIES} times, perhaps for want of "
                "memory; what it recorded is kept, and the same command continues"
            )
        if isinstance(each.error, LMUnavailableError):
            stop(each.error, by="an LM that is down")
        elif each.error is not None:
            raise each.error
    return asked


def _configs(config: RunConfig, most: float) -> list[RunConfig]:
    """The config of each shard, at `most` so many; threads and rates are divided."""
    processes = max(config.processes, _nodes()) if config.engine == "ray" else config.processes
    of = int(max(1, min(processes, config.workers, most, config.lm.rpm or math.inf)))
    rates = {
        name: max(1, int(limit / of))
        for name in ("rpm", "tpm")
        if (limit := getattr(config.lm, name)) is not None
    }
    return [
        config.but(
            shard=f"{number}/{of}",
            out=config.folder(),
            processes=1,
            engine="local",
            workers=len(range(number - 1, config.workers, of)),
            **rates,
        )
        for number in range(1, of + 1)
    ]


def _share(left: Amount, of: int) -> Limits:
    """An equal share of what is `left` to spend, and all of the time."""
    minutes = [one.seconds_left() / 60 for one in active() if one.limits.minutes is not None]
    return Limits(
        cost=left.cost / of if math.isfinite(left.cost) else None,
        tokens=int(left.tokens // of) if math.isfinite(left.tokens) else None,
        calls=int(left.calls // of) if math.isfinite(left.calls) else None,
        minutes=max(0.0, min(minutes)) if minutes else None,
    )


#: Gives what stops a shard that runs: gently, or by force.
_Stop = Callable[[bool], None]
#: Starts the process of a job; gives what it sends, and what stops it.
_Start = Callable[[Job], tuple[Iterator[Any], _Stop]]


def _ask_all(
    jobs: Sequence[Job], start: _Start, on_record: Callable[[Record], None]
) -> list[Ended | None]:
    """Ask each shard in a process of its own; gives how each ended, None if it died."""
    stops: dict[int, _Stop] = {}
    over = threading.Event()

    def ask(number: int, job: Job) -> Ended | None:
        for _ in range(_TRIES):
            if over.is_set():
                break
            sent, stops[number] = start(job)
            for each in sent:
                if isinstance(each, Ended):
                    return each
                on_record(each)
        return None

    with ThreadPoolExecutor(len(jobs)) as pool:
        asked = [pool.submit(copy_context().run, ask, i, job) for i, job in enumerate(jobs)]
        try:
            wait(asked)
        except KeyboardInterrupt:
            over.set()
            for one in [*stops.values()]:
                one(False)
            wait(asked, timeout=ENDING_S)
            raise
        finally:
            over.set()
            for one in stops.values():
                one(True)
    return [each.result() for each in asked]


def _in_process(job: Job) -> tuple[Iterator[Any], _Stop]:
    """Ask a shard in a new process of this machine, which ends when its input does."""
    # Ctrl-C reaches this process alone.
    process = subprocess.Popen(
        [sys.executable, "-m", _PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    channel, sent = process.stdin, process.stdout

    def read() -> Iterator[Any]:
        with process, suppress(BrokenPipeError, EOFError, pickle.UnpicklingError):
            pickle.dump(job, channel)
            channel.flush()
            while True:
                yield pickle.load(sent)

    def stop(force: bool) -> None:
        with suppress(BrokenPipeError):
            channel.close()
        if force:
            process.kill()

    return read(), stop


def _in_cluster(job: Job) -> tuple[Iterator[Any], _Stop]:
    """Ask a shard on a node of the Ray cluster."""
    import ray

    task = (
        ray.remote(import_module(_PROCESS).ask_shard)
        .options(
            num_cpus=1,
            max_retries=0,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"RAGBENCH_CACHE": str(cache_root())}},
        )
        .remote(job)
    )

    def read() -> Iterator[Any]:
        with suppress(ray.exceptions.RayError):  # its node died
            for each in task:
                yield ray.get(each)

    return read(), lambda force: ray.cancel(task, force=force)


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
        where = "here" if address == "auto" else f"at {address}"
        raise ConfigError(
            f"there is no Ray cluster {where} ({str(error).splitlines()[0]}); start one by `ray "
            "start --head`, or set RAY_ADDRESS to its address"
        ) from None


def _nodes() -> int:
    """How many nodes of the cluster take tasks."""
    import ray

    return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())


def collect(folder: Path, card: RunCard) -> bool:
    """Put the shards of the run in `folder`, which this process holds, into it; whether any are.

    Their records, calls, texts, replies of judges and logs are added, all or nothing.

    Raises:
        RunError: one is of another run, or in use.
    """
    shards = runs_under(folder / SHARDS)
    for shard in shards:
        theirs = read_card(shard)
        if not theirs.shard:
            raise RunError(f"{shard} is a whole run, no shard")
        for key, mine, other in differing(card.identity, theirs.identity):
            raise RunError(f"{shard} is no shard of {folder}: {key}={other!r}, not {mine!r}")
        for name in ("data", "compiled", "model"):
            if getattr(card, name) != getattr(theirs, name):
                raise RunError(f"{shard} is no shard of {folder}: it has another {name}")
    with ExitStack() as stack:
        for shard in shards:
            stack.enter_context(held(shard))
        if shards:
            merge_databases(shards, folder, card)
            with (folder / LOG).open("ab") as log:
                for path in filter(Path.is_file, (shard / LOG for shard in shards)):
                    log.write(path.read_bytes())
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    return bool(shards)
