"""A run over several processes, or over the nodes of a Ray cluster.

Each process asks its part of the questions, a shard: a run of its own in a folder below that of the
whole run, under its share of what may still be spent. What a shard that ended left unspent passes
on to those that go on. The command that started them holds the board: what each may spend, the
records as they come, and whether to stop. When all have ended, or when the command is given again,
the shards are put into the whole run.

The nodes of a cluster share a file system: the run's folder and the cache are on it.
"""

import math
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing.managers import BaseManager
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
#: Seconds between two looks of a shard at the board.
LOOK_S = 0.25
#: Seconds that shards have to end by themselves when they were told to stop.
ENDING_S = 5.0
#: How often a shard is begun whose process or node dies.
_TRIES = 2
#: The module that asks a shard in a process of its own.
_PROCESS = "ragbench.experiments.runs.shard_process"
_BY_SPENDING = ("--max-cost", "--max-total-tokens", "--max-calls")


@dataclass(frozen=True)
class Outcome:
    """How a shard ended: the limit or server that stopped it, if any, or the error."""

    stopped_by: str = ""
    error: Exception | None = None


@dataclass(frozen=True)
class Job:
    """What a process needs to ask shard `number`; `allowed` names the user's code."""

    config: RunConfig
    number: int
    address: Any
    key: bytes
    allowed: Sequence[str]
    path: Sequence[str]
    log_level: str
    version: str = __version__
    #: What may be spent in the shard's folder, by earlier processes too.
    limits: Limits = field(default_factory=Limits)

    @property
    def folder(self) -> Path:
        """Where the shard is."""
        return self.config.folder()


class Board:
    """What shards and the command that started them tell each other; thread-safe.

    `may_spend` is for all shards together.
    """

    def __init__(self, may_spend: Amount, on_record: Callable[[Record], None]) -> None:
        self._may_spend, self._on_record, self._lock = may_spend, on_record, threading.Lock()
        self.limited = any(map(math.isfinite, vars(may_spend).values()))
        self._running: dict[int, Path] = {}
        self._granted: dict[int, Amount] = {}
        self._stopped = False
        #: How the shards that came to their end did.
        self.outcomes: dict[int, Outcome] = {}

    def spent(self, folder: Path) -> Amount:
        """What was spent in `folder`; nothing where there is no limit, which nobody asks for."""
        return spent_under(folder) if self.limited else Amount(calls=0)

    def begin(self, jobs: Sequence[Job], spent: Amount) -> None:
        """Give each of `jobs` an equal share of what is left after `spent`."""
        shares = _shares(_minus(self._may_spend, spent), len(jobs))
        for job, share in zip(jobs, shares, strict=True):
            self._granted[job.number] = self.spent(job.folder) + share
            self.outcomes.pop(job.number, None)
        self._running = {job.number: job.folder for job in jobs}

    def record(self, record: Record) -> None:
        """A shard has the record of a question."""
        with self._lock:
            self._on_record(record)

    def granted(self, number: int) -> Amount | None:
        """What may be spent in the folder of shard `number`; None where it is to stop."""
        return None if self._stopped else self._granted[number]

    def done(self, number: int, outcome: Outcome) -> None:
        """Shard `number` came to its end."""
        self.outcomes[number] = outcome

    def end(self, number: int) -> None:
        """The process of shard `number` has ended: what it left passes on to the others."""
        with self._lock:
            left = _minus(self._granted[number], self.spent(self._running.pop(number)))
            for other, share in zip(self._running, _shares(left, len(self._running)), strict=True):
                self._granted[other] += share

    def stop(self) -> None:
        """Let all shards stop."""
        self._stopped = True


def _minus(a: Amount, b: Amount) -> Amount:
    """What is left of `a` after `b`, at least nothing; infinity stays what it is."""
    left = {n: v if math.isinf(v) else max(0, v - getattr(b, n)) for n, v in vars(a).items()}
    return Amount(**left)


def _shares(amount: Amount, n: int) -> list[Amount]:
    """`amount` in `n` parts, as equal as whole calls and tokens allow."""

    def part(total: float, number: int) -> Any:
        return total if math.isinf(total) else total // n + (number < total % n)

    return [
        Amount(part(amount.calls, i), part(amount.tokens, i), amount.cost / n) for i in range(n)
    ]


def as_limits(amount: Amount, minutes: float | None) -> Limits:
    """`amount` as limits; infinity is none."""
    return Limits(minutes=minutes, **{n: v for n, v in vars(amount).items() if math.isfinite(v)})


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
    try:
        with _served(board, config.engine) as (address, key):
            about = (address, key, user_code.allowed(), tuple(sys.path), get_level())
            jobs = [Job(each, number, *about) for number, each in configs.items()]
            spent = board.spent(folder / SHARDS)
            while jobs:
                before = spent
                board.begin(jobs, spent)
                _ask_all(board, jobs, _in_cluster if config.engine == "ray" else _in_process)
                spent = board.spent(folder / SHARDS)
                ended = {number: each.stopped_by for number, each in board.outcomes.items()}
                jobs = [job for job in jobs if ended.get(job.number, "").startswith(_BY_SPENDING)]
                if spent == before:  # an equal share was too little for any: one gets it all
                    jobs = jobs[:1] if len(jobs) > 1 else []
    finally:
        took = board.spent(folder / SHARDS)
        for one in active():
            one.total += took
        collect(folder, card_for(folder, run_context))
    return _stopped_by([board.outcomes.get(number) for number in configs])


def _stopped_by(outcomes: Sequence[Outcome | None]) -> str:
    """What stopped the shards, as the command calls it; blank where nothing did.

    Raises:
        RagbenchError: one failed, or died.
    """
    for number, outcome in enumerate(outcomes, 1):
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
    option = max(outcome.stopped_by for outcome in outcomes if outcome).partition(" ")[0]
    for spent in active():
        for name in vars(spent.limits):
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
        for _ in range(_TRIES):
            granted = board.granted(job.number)
            if granted is not None and job.number not in board.outcomes and not over.is_set():
                start(replace(job, limits=as_limits(granted, _minutes_left())), over)
        board.end(job.number)

    with ThreadPoolExecutor(len(jobs)) as pool:
        asked = [pool.submit(copy_context().run, ask, job) for job in jobs]
        try:
            wait(asked)
        except KeyboardInterrupt:
            board.stop()
            wait(asked, timeout=ENDING_S)
            raise
        finally:
            over.set()
    for each in asked:
        each.result()


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

    def serve() -> None:
        with suppress(SystemExit):  # how it ends
            server.serve_forever()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield server.address, key
    finally:
        server.stop_event.set()
        serving.join()
        server.listener.close()


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


def _minutes_left() -> float | None:
    left = [one.seconds_left() / 60 for one in active() if one.limits.minutes is not None]
    return max(0.0, min(left)) if left else None


def collect(folder: Path, card: RunCard) -> bool:
    """Put the shards of the run in `folder`, which this process holds, into it; whether any are.

    Their records, calls, texts, replies of judges and logs are added, all or nothing.

    Raises:
        RunError: one is of another run, or in use.
    """
    shards = runs_under(folder / SHARDS)
    for shard in shards:
        _check_shard(folder, card, shard, read_card(shard))
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


def _check_shard(folder: Path, card: RunCard, shard: Path, theirs: RunCard) -> None:
    if not theirs.shard:
        raise RunError(f"{shard} is a whole run, no shard")
    for key, mine, other in differing(card.identity, theirs.identity):
        raise RunError(f"{shard} is no shard of {folder}: {key}={other!r}, not {mine!r}")
    for name in ("data", "compiled", "model"):
        if getattr(card, name) != getattr(theirs, name):
            raise RunError(f"{shard} is no shard of {folder}: it has another {name}")
