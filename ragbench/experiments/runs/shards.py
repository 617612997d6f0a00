"""A run over several processes, or over the nodes of a Ray cluster.

Each process asks its part of the questions, a shard: a run of its own in a folder below that of the
whole run, under its share of what may still be spent. What a shard that ended left unspent passes
on to those that go on. The command that started them holds the board: what each may spend, the
records as they come, and whether to stop. When all have ended, or when the command is given again,
the shards are put into the whole run.

The nodes of a cluster share a file system: the run's folder and the cache are on it.
"""

from __future__ import annotations

import math
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

from ragbench import __version__, user_code
from ragbench.errors import (
    ConfigError,
    LMUnavailableError,
    RunError,
    needs_extra,
)
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.card import card_for
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.merging import SHARDS, collect
from ragbench.experiments.runs.spend import as_limits, is_limited, minus, shares_of, spent_under
from ragbench.lms.calls import Amount, Limits, active, room, stop
from ragbench.logs import get_level
from ragbench.paths import cache_root
from ragbench.programs import PROGRAMS
from ragbench.record import Record

#: Seconds between two looks of a shard at the board.
LOOK_S = 0.25
#: Seconds that shards have to end by themselves when they were told to stop.
ENDING_S = 5.0
#: How often a shard is begun whose process or node dies.
_TRIES = 2
#: The module that asks a shard in a process of its own.
_PROCESS = "ragbench.experiments.runs.shard_process"
_NOTHING = Amount(calls=0)
_BY_SPENDING = ("--max-cost", "--max-total-tokens", "--max-calls")


@dataclass(frozen=True)
class Outcome:
    """How a shard ended: the limit or server that stopped it, if any, or the error."""

    stopped_by: str = ""
    error: Exception | None = None


@dataclass
class _Shard:
    """A shard as the board has it.

    `granted` is what its process may spend, `before` what was spent when that began, `outcome` None
    until it has ended.
    """

    folder: Path
    granted: Amount = _NOTHING
    before: Amount = _NOTHING
    outcome: Outcome | None = None

    def begin(self, granted: Amount) -> None:
        self.granted, self.outcome = granted, None
        self.before = spent_under(self.folder) if is_limited(granted) else _NOTHING

    def left(self) -> Amount:
        if not is_limited(self.granted):
            return self.granted
        return minus(self.granted, minus(spent_under(self.folder), self.before))


class Board:
    """What shards and the command that started them tell each other; thread-safe."""

    def __init__(self, left: Amount, on_record: Callable[[Record], None]) -> None:
        self.left = left
        self._on_record, self._lock = on_record, threading.Lock()
        self._stopped = False
        self.running: dict[int, _Shard] = {}

    def begin(self, shards: Mapping[int, _Shard]) -> None:
        """Give each of `shards`, whose processes are about to start, an equal share of the rest."""
        shares = shares_of(self.left, len(shards))
        for shard, share in zip(shards.values(), shares, strict=True):
            shard.begin(share)
        self.left, self.running = _NOTHING, dict(shards)

    def record(self, record: Record) -> None:
        """A shard has the record of a question."""
        with self._lock:
            self._on_record(record)

    def granted(self, number: int) -> Amount | None:
        """What the process of shard `number` may spend; None where it is to stop."""
        return None if self._stopped else self.running[number].granted

    def done(self, number: int, outcome: Outcome) -> None:
        """Shard `number` came to its end."""
        self.running[number].outcome = outcome

    def end(self, number: int) -> None:
        """The process of shard `number` has ended: what it left passes on to the others."""
        with self._lock:
            rest = self.running.pop(number).left()
            others = list(self.running.values())
            for other, share in zip(others, shares_of(rest, len(others)), strict=True):
                other.granted += share
            if not others:
                self.left = rest

    def stop(self) -> None:
        """Let all shards stop."""
        self._stopped = True


@dataclass(frozen=True)
class Job:
    """What a process needs to ask shard `number`; `allowed` names the user's code."""

    config: RunConfig
    number: int
    limits: Limits
    address: Any
    key: bytes
    allowed: Sequence[str]
    path: Sequence[str]
    log_level: str
    version: str = __version__


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


def ask_in_shards(run_context: RunContext, n: int, on_record: Callable[[Record], None]) -> str:
    """Ask what the run has not answered, `n` questions, in shards, and put them into the run.

    Gives what stopped it, such as a limit of spending; blank where nothing did.

    Raises:
        RagbenchError: a shard failed; what was recorded is in the run.
        KeyboardInterrupt: the user stopped it; so it is then.
    """
    config, left = run_context.config, room()
    folder = config.folder()
    board = Board(left, on_record)
    configs = _configs(config, min(n, left.calls))
    shards = {number: _Shard(each.folder()) for number, each in configs.items()}
    start = _in_cluster if config.engine == "ray" else _in_process
    try:
        with _served(board, config.engine) as (address, key):
            about = (address, key, user_code.allowed(), tuple(sys.path), get_level())
            jobs = [Job(each, number, Limits(), *about) for number, each in configs.items()]
            while jobs:
                had = board.left
                board.begin({job.number: shards[job.number] for job in jobs})
                _ask_all(board, jobs, start)
                jobs = [job for job in jobs if _wants_more(shards[job.number])]
                if board.left == had:  # an equal share was too little for any: one gets it all
                    jobs = jobs[:1] if len(jobs) > 1 else []
    finally:
        if is_limited(left):
            took = spent_under(folder / SHARDS)
            for spent in active():
                spent.total += took
        collect(folder, card_for(folder, run_context))
    return _stopped_by(shards)


def _wants_more(shard: _Shard) -> bool:
    return shard.outcome is not None and shard.outcome.stopped_by.startswith(_BY_SPENDING)


def _stopped_by(shards: Mapping[int, _Shard]) -> str:
    """What stopped the shards, as the command calls it; blank where nothing did.

    Raises:
        RagbenchError: one failed, or died.
    """
    for number, shard in shards.items():
        outcome = shard.outcome
        if outcome is None:
            raise RunError(
                f"the process of shard {number} was killed {_TRIES} times, perhaps for want of "
                "memory; what it recorded is kept, and the same command continues"
            )
        if isinstance(outcome.error, LMUnavailableError):
            stop(outcome.error, by="an LM that is down", spent=active())
            return "an LM that is down"
        if outcome.error is not None:
            raise outcome.error
    named = [shard.outcome.stopped_by for shard in shards.values() if shard.outcome]
    option = max(named, default="").partition(" ")[0]
    for spent in active():
        for name in ("cost", "tokens", "calls", "minutes"):
            if getattr(spent.limits, name) is None:
                continue
            if (shown := spent.limits.option(name)).partition(" ")[0] == option:
                spent.stopped_by = spent.stopped_by or shown
                return shown
    return ""


def _configs(config: RunConfig, most: float) -> dict[int, RunConfig]:
    """The config of each shard, at `most` so many, by its number; threads and rates are divided."""
    processes = max(config.processes, _nodes()) if config.engine == "ray" else config.processes
    of = int(max(1, min(processes, config.workers, most, config.lm.rpm or math.inf)))
    rates = {
        name: max(1, int(limit / of))
        for name in ("rpm", "tpm")
        if (limit := getattr(config.lm, name)) is not None
    }
    return {
        number: config.but(
            shard=f"{number}/{of}",
            out=config.folder(),
            processes=1,
            engine="local",
            workers=len(range(number - 1, config.workers, of)),
            **rates,
        )
        for number in range(1, of + 1)
    }


#: Starts the process of a job, and returns when it has ended; kills it when the event is set.
_Start = Callable[[Job, threading.Event], None]


def _ask_all(board: Board, jobs: Sequence[Job], start: _Start) -> None:
    """Ask each shard in a process of its own; return when all have ended."""
    over = threading.Event()

    def ask(job: Job) -> None:
        shard = board.running[job.number]
        for _ in range(_TRIES):
            if shard.outcome is None and not over.is_set():
                shard.begin(shard.left())  # which a process that died has spent some of
                start(replace(job, limits=as_limits(shard.granted, _minutes_left())), over)
        board.end(job.number)

    threads = [
        threading.Thread(target=copy_context().run, args=(ask, job), daemon=True) for job in jobs
    ]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            threads[0].join(LOOK_S) if threads[0].is_alive() else time.sleep(LOOK_S)
    except KeyboardInterrupt:
        board.stop()
        end = time.monotonic() + ENDING_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        over.set()
        for thread in threads:
            thread.join()
        raise


def _in_process(job: Job, over: threading.Event) -> None:
    """Ask a shard in a new process of this machine."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Ctrl-C reaches this process alone; the board tells the shards.
    with subprocess.Popen(
        [sys.executable, "-m", _PROCESS],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as channel:
            pickle.dump(job, channel)
        while process.poll() is None:
            if over.wait(0.05):
                process.kill()
                break


def _in_cluster(job: Job, over: threading.Event) -> None:
    """Ask a shard on a node of the Ray cluster."""
    import ray

    options = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": "SPREAD"}
    environment = {"env_vars": {"RAGBENCH_CACHE": str(cache_root())}}
    ask_shard = import_module(_PROCESS).ask_shard
    task = ray.remote(ask_shard).options(**options, runtime_env=environment).remote(job)
    while not over.is_set():
        ended, _ = ray.wait([task], timeout=LOOK_S)
        if ended:
            with suppress(ray.exceptions.RayError):  # its node died
                ray.get(task)
            return
    ray.cancel(task, force=True)


@contextmanager
def _served(board: Board, engine: str) -> Iterator[tuple[Any, bytes]]:
    """Serve the board to other processes; gives its address, and the key to prove oneself by."""
    address = None
    if engine == "ray":
        import ray

        address = (ray.util.get_node_ip_address(), 0)

    class Serving(BaseManager):
        pass

    Serving.register("board", callable=lambda: board)
    key = secrets.token_bytes(16)
    server: Any = Serving(address=address, authkey=key).get_server()
    serving = threading.Thread(target=_serve, args=(server,), daemon=True)
    serving.start()
    try:
        yield server.address, key
    finally:
        server.stop_event.set()
        serving.join()
        server.listener.close()


def _serve(server: Any) -> None:
    with suppress(SystemExit):  # how it ends
        server.serve_forever()


def _join_cluster() -> None:
    """Make this process part of the cluster that runs here, or that RAY_ADDRESS names.

    Raises:
        ConfigError: there is none.
        MissingExtraError: Ray is not installed.
    """
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


def _minutes_left() -> float | None:
    left = [one.seconds_left() / 60 for one in active() if one.limits.minutes is not None]
    return max(0.0, min(left)) if left else None
