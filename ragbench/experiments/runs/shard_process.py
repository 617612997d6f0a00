"""Process of one shard of a run, on this machine or on a node of a cluster. See `shards`."""

import logging
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Iterator
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
from ragbench.experiments.runs.runner import ask_all, prepare
from ragbench.experiments.runs.shards import ENDING_S, Job, Message, Send
from ragbench.experiments.store import text_id
from ragbench.lms.calls import spending
from ragbench.logs import as_json, quiet_libraries, set_level, to_terminal
from ragbench.record import Call, Record, was_sent


class _Sent(logging.Handler):
    """Handler that sends the writes of a `Store` and the log lines to the command's process."""

    def __init__(self, send: Send, written: Semaphore | None) -> None:
        super().__init__()
        self._send = send
        self._written = written

    def emit(self, record: logging.LogRecord) -> None:
        self._send(("log", as_json(record)))

    def write(self, record: Record) -> None:
        record.memo.clear()  # Its keys cannot be sent.
        self._send(("write", record))
        if self._written is not None:
            self._written.acquire()

    def file_call(self, qid: str, call: Call) -> None:
        if was_sent(call):
            self._send(("file_call", qid, call))

    def keep(self, text: str) -> str:
        self._send(("keep", text))
        return text_id(text)


def ask_shard(job: Job, written: Semaphore | None = None) -> Iterator[Message]:
    """Yield the messages of a shard. A thread that sent a record waits until it is saved.

    Args:
        job: Work of the shard.
        written: Semaphore that the caller releases for each saved record. None: do not wait.
    """
    stopping.reset()  # a process of Ray may have asked another shard before
    signal.signal(signal.SIGINT, lambda *_: stopping.stop_all())  # so Ray tells it to stop
    sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(job, sent.put, written), daemon=True).start()
    while True:
        try:
            message = sent.get(timeout=stopping.POLL_S)  # between two, a signal is handled
        except queue.Empty:
            continue
        yield message
        if message[0] == "ended":
            return


def _ask(job: Job, send: Send, written: Semaphore | None) -> None:
    """Ask the questions of `job`, and send the error that ended it to the command, if any."""
    for place in job.path:
        if place not in sys.path:
            sys.path.append(place)
    quiet_libraries()
    set_level(job.log_level)
    if job.loud:
        to_terminal()
    store = _Sent(send, written)
    error: RagbenchError | None = None
    logging.getLogger().addHandler(store)
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
            with run_context.active(), suppress(StoppedError):
                prepare(run_context, todo, store)
                ask_all(run_context, todo, store)
    except (LMUnavailableError, MissingExtraError) as known:
        error = type(known)(str(known))
    except RagbenchError as known:
        error = RunError(str(known))
    except BaseException as other:
        error = RunError(f"a shard failed: {type(other).__name__}: {other}")
    finally:
        logging.getLogger().removeHandler(store)
    send(("ended", error))


def main() -> None:
    """Run the shard on standard input until that is closed, and send to standard output."""
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # keeps prints of the user's code out of the messages
        job = pickle.load(sys.stdin.buffer)
        written = Semaphore(0)

        def end_with_the_command() -> None:
            while os.read(0, 1):
                written.release()
            stopping.stop_all()
            written.release(10_000)
            threading.Event().wait(ENDING_S)
            os._exit(1)

        threading.Thread(target=end_with_the_command, daemon=True).start()
        try:
            for message in ask_shard(job, written):
                pickle.dump(message, output)
                output.flush()
        except BrokenPipeError:  # the command was killed
            os._exit(1)


if __name__ == "__main__":
    main()
