"""Process of one shard of a run, on this machine or on a node of a cluster. See `shards`."""

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from threading import Semaphore
from typing import Any

from pydantic import BaseModel

from ragbench import __version__, user_code
from ragbench.context import allow_calls, stop_all
from ragbench.errors import LMUnavailableError, RagbenchError, RunError, StoppedError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.asking import ask_all
from ragbench.experiments.runs.context import ready
from ragbench.experiments.runs.preparation import prepare
from ragbench.experiments.store import Statement, Store
from ragbench.lms.calls import Limits, spending
from ragbench.logs import LOG, log_to, set_level
from ragbench.record import Call, Record, was_sent

#: Message of a shard: `commit` with statements, `call` or `record` to count, or `error`.
Message = tuple[Any, ...]
#: Receiver of the messages of a shard.
Send = Callable[[Message], None]


@dataclass(frozen=True)
class Job:
    """Input of a process that runs a shard. `card` has the price, `allowed` the user's code."""

    config: RunConfig
    qids: frozenset[str]
    limits: Limits
    card: BaseModel | None
    allowed: Sequence[str]
    path: Sequence[str]
    log_level: str
    version: str = __version__


class _SentStore(Store):
    """A store whose transactions the command's process commits."""

    def __init__(self, job: Job, send: Send, committed: Semaphore | None) -> None:
        super().__init__(job.config.folder(), job.card)
        self._send = send
        self._committed = committed

    def _commit(self, statements: Sequence[Statement], *, durable: bool) -> BaseException | None:
        self._send(("commit", statements, durable))
        if self._committed is not None:
            self._committed.acquire()
        return None

    def file_call(self, qid: str, call: Call) -> None:
        if was_sent(call):
            self._send(("call", call))
        super().file_call(qid, call)


def _run_shard(job: Job, send: Send, committed: Semaphore | None) -> None:
    """Run the questions of `job`, and send the error that ended them, if any."""

    def on_record(record: Record) -> None:
        send(("record", replace(record)))  # without its memo, which another thread may fill

    sys.path += [place for place in job.path if place not in sys.path]
    set_level(job.log_level)
    user_code.allow(*job.allowed)
    try:
        if job.version != __version__:
            raise RunError(f"a node has ragbench {__version__}; the run is of {job.version}")
        with log_to(job.config.folder() / LOG), spending(job.limits):
            run_context = ready(job.config)
            todo = [example for example in run_context.examples if example.qid in job.qids]
            store = _SentStore(job, send, committed)
            # The command's process reports a reached limit.
            with run_context.active(), store, suppress(StoppedError):
                prepare(run_context, todo, store)
                ask_all(run_context, todo, store, on_record)
    except RagbenchError as error:
        kind = LMUnavailableError if isinstance(error, LMUnavailableError) else RunError
        send(("error", kind(str(error))))


def stream_shard(job: Job, committed: Semaphore | None = None) -> Iterator[Message]:
    """Yield the messages of a shard. Its threads only put them into a queue.

    Args:
        job: Work of the shard.
        committed: Semaphore that the caller releases after each commit. None: do not wait.
    """
    allow_calls()  # A process of Ray may have run another shard before.
    signal.signal(signal.SIGINT, lambda *_: stop_all())  # so Ray tells it to stop
    sent: queue.SimpleQueue[Message | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            _run_shard(job, sent.put, committed)
        finally:
            sent.put(None)

    threading.Thread(target=run, daemon=True).start()
    while (message := sent.get()) is not None:
        yield message


def main() -> None:
    """Run a shard for each pipe that the arguments name, in one forked process each."""
    pipes = [Connection(int(number)) for number in sys.argv[1:]]
    own = pipes[0]
    for pipe in pipes[1:]:
        if os.fork() == 0:
            own = pipe
            break
    for pipe in pipes:
        if pipe is not own:
            pipe.close()
    try:
        with own:
            job = own.recv()
            signal.signal(signal.SIGTERM, lambda *_: stop_all())
            committed = Semaphore(0)
            for message in stream_shard(job, committed):
                own.send(message)
                if message[0] == "commit":
                    own.recv()
                    committed.release()
    except (EOFError, OSError):  # The command ended.
        os._exit(1)
    with suppress(ChildProcessError):  # The first process waits for those that it forked.
        while True:
            os.wait()
    sys.stdout.flush()
    os._exit(0)  # The regular end takes 0.2 s to free objects.


if __name__ == "__main__":
    main()
