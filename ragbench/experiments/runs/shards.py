"""Runs over several processes, or over the nodes of a Ray cluster.

Each process runs a part of the questions, a shard, with an equal share of the remaining limits. It
sends its transactions to the command's process, which commits them. The command's process
runs the remaining questions with the budget that the shares did not use.
"""

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import dspy
from pydantic import BaseModel

from ragbench import __version__, user_code
from ragbench.children import child_environment, python_command
from ragbench.errors import ConfigError, LMUnavailableError, RunError, needs_extra
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.store import Store
from ragbench.lms.calls import Amount, Limits, active, room, stop
from ragbench.lms.specs import HostedSpec, parse_spec
from ragbench.logs import LOG, get_level
from ragbench.paths import cache_root
from ragbench.programs import PROGRAMS
from ragbench.record import Record

#: Grace period in seconds for shards to end after a stop.
ENDING_S = 5.0
#: Maximum number of attempts to run the remaining questions if a process or node dies.
_TRIES = 2
#: Module that runs a shard in its own process.
_PROCESS = "ragbench.experiments.runs.shard_process"

#: Keys of embedding, reranking and search servers, and of the hub.
_SERVICE_KEYS = (
    "OPENAI_API_KEY",
    "RAGBENCH_EMBEDDINGS_API_KEY",
    "RAGBENCH_RERANK_API_KEY",
    "RAGBENCH_RETRIEVER_API_KEY",
    "QDRANT_API_KEY",
    "HF_TOKEN",
)

#: Message of a shard: `commit` with statements, `call` and `record` to count, `log` with a line, or
#: finally `ended` with an error or None.
Message = tuple[Any, ...]
#: Receiver of the messages of a shard.
Send = Callable[[Message], None]


@dataclass(frozen=True)
class Job:
    """Input of a process that runs a shard.

    `card` has the price, and `allowed` names the user's code.
    """

    config: RunConfig
    qids: frozenset[str]
    limits: Limits
    card: BaseModel | None
    allowed: Sequence[str]
    path: Sequence[str]
    log_level: str
    #: True for the one shard that shows its warnings on the terminal: all have the same ones.
    loud: bool
    version: str = __version__


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
    if config.engine == "ray":
        option = "--engine ray"
    else:
        option = f"--processes {config.processes}"
    cure = f"leave {option.split()[0]} out"
    for spec in (config.lm, *config.lm_for.values()):
        if spec.partition(":")[0] == "local":
            raise ConfigError(f"{option}: the local model {spec} serves one process; {cure}")
    if config.program not in PROGRAMS.names() and not user_code.is_external(config.program):
        raise ConfigError(f"{option}: a program given as an object stays in this process; {cure}")
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
        The questions without a record, because the limits of a shard were reached.

    Raises:
        RagbenchError: A shard failed. Its records are saved.
        KeyboardInterrupt: The user stopped the command. All shards are stopped.
    """
    config = run_context.config
    asked_qids = set[str]()
    start = _in_cluster if config.engine == "ray" else _in_process

    def take(message: Message) -> None:
        match message:
            case "log", line:
                with suppress(OSError):
                    log.write(line + "\n")
            case "call", call:
                for limit in active():
                    limit.count([call])
            case "commit", statements, durable:
                store.run(*statements, durable=durable)
            case "record", record if not record.cut_off:
                asked_qids.add(record.qid)
                on_record(record)

    with (store.folder / LOG).open("a", 1, "utf-8", "replace") as log:
        for _ in range(_TRIES):
            jobs = _jobs(config, store.card, [e.qid for e in todo if e.qid not in asked_qids])
            ended = _ask_all(jobs, start, take)
            for _, error in filter(None, ended):
                if isinstance(error, LMUnavailableError):
                    stop(error, by="an LM that is down")
                elif error is not None:
                    raise error
            if all(ended):
                return [example for example in todo if example.qid not in asked_qids]
    raise RunError(
        f"shard processes died {_TRIES} times, perhaps from a lack of memory; their records are "
        "saved, and the same command continues"
    )


def _jobs(config: RunConfig, card: BaseModel | None, qids: Sequence[str]) -> list[Job]:
    """Divide `qids`, the threads, the rates and the remaining limits among the shards."""
    budget = room()
    if config.engine == "ray":
        processes = max(config.processes, _nodes())
    else:
        processes = config.processes
    bounds = (processes, config.workers, len(qids), budget.calls, config.rpm or math.inf)
    count = int(max(1, min(bounds)))
    rates: dict[str, int] = {}
    for name in ("rpm", "tpm"):
        rate = getattr(config, name)
        if rate is not None:
            rates[name] = max(1, int(rate / count))
    surroundings = (_share(budget, count), card, user_code.allowed(), tuple(sys.path), get_level())
    jobs = []
    for number in range(count):
        workers = len(range(number, config.workers, count))
        own = config.but(out=config.folder(), processes=1, engine="local", workers=workers, **rates)
        jobs.append(Job(own, frozenset(qids[number::count]), *surroundings, number == 0))
    return jobs


def _share(budget: Amount, count: int) -> Limits:
    """Return an equal share of the remaining `budget`, with all of the remaining time."""
    minutes = []
    for limit in active():
        if limit.limits.minutes is not None:
            minutes.append(limit.seconds_left() / 60)
    return Limits(
        cost=budget.cost / count if math.isfinite(budget.cost) else None,
        tokens=int(budget.tokens // count) if math.isfinite(budget.tokens) else None,
        calls=int(budget.calls // count) if math.isfinite(budget.calls) else None,
        minutes=max(0.0, min(minutes)) if minutes else None,
    )


#: Stops a running shard, gracefully or by force.
_Stop = Callable[[bool], None]
#: Starts the process of a job. Returns its messages and a function that stops it.
_Start = Callable[[Job], tuple[Iterator[Message], _Stop]]


def _ask_all(jobs: Sequence[Job], start: _Start, take: Send) -> list[Message | None]:
    """Run each shard in its own process. Return the last message of each, None if it died."""
    stops: list[_Stop] = []

    def ask(job: Job) -> Message | None:
        sent, stop_it = start(job)
        stops.append(stop_it)
        for message in sent:
            if message[0] == "ended":
                return message
            take(message)
        return None

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(copy_context().run, ask, job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            for stop_it in stops:
                stop_it(False)
            wait(futures, timeout=ENDING_S)
            raise
        finally:
            for stop_it in stops:
                stop_it(True)


def _in_process(job: Job) -> tuple[Iterator[Message], _Stop]:
    """Run a shard in a new process of this machine, which ends when its input is closed."""
    # A new session: Ctrl-C only reaches this process.
    process = subprocess.Popen(
        python_command("-m", _PROCESS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(_keys(job)),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    channel = process.stdin
    sent = process.stdout

    def read() -> Iterator[Message]:
        with suppress(BrokenPipeError, EOFError, pickle.UnpicklingError), process:
            pickle.dump(job, channel)
            channel.flush()
            while True:
                message = pickle.load(sent)
                yield message
                if message[0] == "commit":  # it is on disk: the next question may begin
                    with suppress(OSError, ValueError):
                        channel.write(b".")
                        channel.flush()

    def stop_it(force: bool) -> None:
        with suppress(BrokenPipeError):
            channel.close()
        if force:
            process.kill()

    return read(), stop_it


def _keys(job: Job) -> Iterable[str]:
    """Return the secret variables that the shard needs.

    The user's code and LiteLLM read variables that ragbench does not know, so those get all.
    """
    config = job.config
    keys = set(_SERVICE_KEYS)
    for value in config.header.values():
        keys.add(value.removeprefix("env:"))
    for text in (config.lm, *config.lm_for.values()):
        spec = parse_spec(text, api_base=config.api_base)
        if job.allowed or (isinstance(spec, HostedSpec) and spec.by_litellm):
            return os.environ
        if isinstance(spec, HostedSpec):
            keys.update(spec.key_variables)
    return keys


def _in_cluster(job: Job) -> tuple[Iterator[Message], _Stop]:
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

    def read() -> Iterator[Message]:
        with suppress(ray.exceptions.RayError):  # its node died
            for reference in task:
                yield ray.get(reference)

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
    """Count the nodes of the cluster that accept tasks."""
    import ray

    return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
