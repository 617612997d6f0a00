"""Questions answered in worker processes, under the limits of the one that starts them.

Each worker answers one question after the other in each of its threads. Everything that a run has
once stays here: its order of questions, records and journals, limits of spending, rate limits, and
which requests are under way (`ragbench.lms.link`). The questions of a worker that dies are given to
another one, and the others go on; when this process dies, its workers end.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import Protocol, Self

import dspy

from ragbench.errors import RunError
from ragbench.experiments.records import PromptLog, SentCalls, encode, parse_line
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.question import lost
from ragbench.experiments.runs.spread.worker import ANSWERS, CONTROL, LEAVE, STOP, Shown, Worker
from ragbench.ledger import open_ledger
from ragbench.lms.link import Address, PackedError, notice_silence, receive, send, serve
from ragbench.logs import add_line, show
from ragbench.record import Call, Record

#: How many workers a question may be with when they die; it may be what they die of.
_TRIES = 2


class WorkerProcesses(Protocol):
    """The worker processes of a pool."""

    #: Where the pool is to listen for them; None for a Unix socket.
    address: Address | None

    def start(self, worker: Worker) -> None:
        """Start them."""

    def wait(self) -> str:
        """Return when all have ended, or soon after `end` began; says why, where it is known."""

    def end(self) -> None:
        """Return when all have ended, which they were told to do."""


class WorkerPool:
    """Workers of `processes` with so many threads in all; for a `with` block in the main thread."""

    def __init__(
        self,
        processes: WorkerProcesses,
        run_context: RunContext,
        *,
        threads: int,
        sent: SentCalls,
        prompts: PromptLog | None,
    ) -> None:
        self._processes, self._run_context = processes, run_context
        self._sent, self._prompts = sent, prompts
        self._free: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
        self._controls: list[Connection] = []
        self._closed, self._why = False, ""
        self._key = secrets.token_bytes(16)
        family = "AF_UNIX" if processes.address is None else "AF_INET"
        # Who connects has to know the key, which is asked for in a thread of its own.
        self._listener = Listener(processes.address, family, backlog=2 * threads + 64)

    def __enter__(self) -> Self:
        self._processes.start(Worker(self._run_context, self._listener.address, self._key))
        self._start(self._accept)
        self._watching = self._start(self._watch)
        return self

    def __exit__(self, *error: object) -> None:
        self._closed = True
        self._tell(LEAVE)
        self._processes.end()
        self._watching.join()
        with suppress(OSError):  # wakes the thread that accepts
            Client(self._listener.address).close()
        self._listener.close()

    def stop(self) -> None:
        """Let the workers begin nothing more, as after Ctrl-C."""
        self._tell(STOP)

    def _tell(self, message: str) -> None:
        for control in self._controls:
            with suppress(OSError):  # it died
                send(control, message)

    def ask(self, example: dspy.Example) -> tuple[Record, bytes]:
        """As `ragbench.experiments.runs.question.ask`, in the next worker that is free.

        With the record comes the line that the worker made of it.

        Raises:
            RunError: no worker is left.
            MissingExtraError: a worker needs a package that is not installed.
        """
        file, start = self._sent.of(example.qid), time.perf_counter()
        with open_ledger(file) as ledger:
            for number in range(_TRIES):
                worker = self._given(example.qid)
                try:
                    while isinstance(message := receive(worker), Call):
                        ledger.file(message)
                    break
                except (EOFError, OSError):
                    if self._closed or number + 1 == _TRIES:
                        record = lost(example, ledger, latency_s=time.perf_counter() - start)
                        return record, encode(record)
        self._free.put(worker)
        if isinstance(message, PackedError):
            raise message.error()
        if self._prompts:
            for text in message.texts:
                self._prompts.add(text)
        return parse_line(message.line), message.line

    def _given(self, qid: str) -> Connection:
        """The thread of a worker that took the question."""
        while (worker := self._free.get()) is not None:
            with suppress(OSError):  # it died while it had nothing to do
                send(worker, qid)
                return worker
        self._free.put(None)
        raise RunError(
            f"all worker processes ended: {self._why or 'they were killed, perhaps for memory'}; "
            "the same command continues"
        )

    def _start(self, work: Callable[..., None], *args: object) -> threading.Thread:
        made = threading.Thread(target=copy_context().run, args=(work, *args), daemon=True)
        made.start()
        return made

    def _accept(self) -> None:
        while not self._closed:
            with suppress(Exception):  # a worker that died while it connected
                self._start(self._serve, self._listener.accept())

    def _serve(self, channel: Connection) -> None:
        try:
            deliver_challenge(channel, self._key)
            answer_challenge(channel, self._key)
            notice_silence(channel)
            first = receive(channel)
        except (EOFError, OSError, AuthenticationError):
            channel.close()
            return
        if first == CONTROL:
            self._controls.append(channel)
            with suppress(EOFError, OSError):
                while True:
                    _hear(receive(channel))
        elif first == ANSWERS:
            self._free.put(channel)
        else:
            with channel:
                serve(channel, first)

    def _watch(self) -> None:
        self._why = self._processes.wait()
        self._free.put(None)


def _hear(message: object) -> None:
    if isinstance(message, Shown):
        show(message.event, message.text)
    elif isinstance(message, bytes):
        add_line(message)
