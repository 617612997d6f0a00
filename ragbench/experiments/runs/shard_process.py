"""Process of one shard of a run, on this machine or on a node of a cluster. See `shards`."""

import logging
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Semaphore

from ragbench import __version__, stopping, user_code
from ragbench.errors import (
    LMUnavailableError,
    MissingExtraError,
    RagbenchError,
    RunError,
    StoppedError,
)
from ragbench.experiments.runs.context import ready
from ragbench.experiments.runs.preparation import prepare
from ragbench.experiments.runs.runner import ask_all
from ragbench.experiments.runs.shards import ENDING_S, Job, Message, Send
from ragbench.experiments.store import Statement, Store
from ragbench.lms.calls import spending
from ragbench.logs import as_json, quiet_libraries, set_level, to_terminal
from ragbench.record import Call, Record, was_sent


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

    def write(self, record: Record) -> None:
        super().write(record)
        record.memo.clear()  # Its keys cannot be sent.
        self._send(("record", record))


class _SentLog(logging.Handler):
    """Handler that sends log lines to the command's process."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(("log", as_json(record)))


def ask_shard(job: Job, committed: Semaphore | None = None) -> Iterator[Message]:
    """Yield the messages of a shard. A thread that sent a transaction waits for its commit.

    Args:
        job: Work of the shard.
        committed: Semaphore that the caller releases for each commit. None: do not wait.
    """
    stopping.reset()  # a process of Ray may have asked another shard before
    signal.signal(signal.SIGINT, lambda *_: stopping.stop_all())  # so Ray tells it to stop
    sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(job, sent.put, committed), daemon=True).start()
    while True:
        try:
            message = sent.get(timeout=stopping.POLL_S)  # between two, a signal is handled
        except queue.Empty:
            continue
        yield message
        if message[0] == "ended":
            return


def _ask(job: Job, send: Send, committed: Semaphore | None) -> None:
    """Ask the questions of `job`, and send the error that ended it to the command, if any."""
    for place in job.path:
        if place not in sys.path:
            sys.path.append(place)
    quiet_libraries()
    set_level(job.log_level)
    if job.loud:
        to_terminal()
    log = _SentLog(send)
    error: RagbenchError | None = None
    logging.getLogger().addHandler(log)
    try:
        if job.version != __version__:
            raise RunError(f"a node has ragbench {__version__}; the run is of {job.version}")
        if not job.config.folder().is_dir():
            raise RunError(
                f"a node does not see {job.config.folder()}: --engine ray needs a folder that all "
                "nodes share; give --out"
            )
        user_code.allow(*job.allowed)
        with spending(job.limits):
            run_context = ready(job.config)
            todo = []
            for example in run_context.examples:
                if example.qid in job.qids:
                    todo.append(example)
            # The command's process reports a reached limit.
            store = _SentStore(job, send, committed)
            with run_context.active(), store, suppress(StoppedError):
                prepare(run_context, todo, store)
                ask_all(run_context, todo, store)
    except (LMUnavailableError, MissingExtraError) as known:
        error = type(known)(str(known))
    except RagbenchError as known:
        error = RunError(str(known))
    except BaseException as other:
        error = RunError(f"a shard failed: {type(other).__name__}: {other}")
    finally:
        logging.getLogger().removeHandler(log)
    send(("ended", error))


def main() -> None:
    """Run the shard on standard input until that is closed, and send to standard output."""
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # keeps prints of the user's code out of the messages
        job = pickle.load(sys.stdin.buffer)
        committed = Semaphore(0)

        def end_with_the_command() -> None:
            while os.read(0, 1):
                committed.release()
            stopping.stop_all()
            committed.release(10_000)
            threading.Event().wait(ENDING_S)
            os._exit(1)

        threading.Thread(target=end_with_the_command, daemon=True).start()
        try:
            for message in ask_shard(job, committed):
                pickle.dump(message, output)
                output.flush()
        except BrokenPipeError:  # the command was killed
            os._exit(1)


if __name__ == "__main__":
    main()
