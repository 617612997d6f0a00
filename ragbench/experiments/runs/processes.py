"""Questions answered in worker processes, under the limits of the one that starts them.

The workers are forks: they have the data, the index and the program as the parent made them. Each
answers one question after the other in each of its threads. Everything that a run has once stays in
the parent: its order of questions, records and journals, limits of spending, rate limits, and which
requests are under way (`ragbench.lms.link`). A worker that dies fails the questions that it had,
and the others go on; when the parent dies, its workers end.
"""

from __future__ import annotations

import gc
import os
import queue
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any, NamedTuple, Self

import dspy

from ragbench import stopping
from ragbench.context import current, use
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.records import PromptLog, SentCalls, encode, parse_line
from ragbench.experiments.runs.context import RunContext, models_in_process
from ragbench.experiments.runs.question import ask, lost
from ragbench.ledger import open_ledger
from ragbench.lms.calls import Elsewhere, HostedClient
from ragbench.lms.link import Link, receive, send, serve
from ragbench.logs import show, show_by
from ragbench.record import Call, Record

_FIRST_CONTROL, _FIRST_ANSWERS, _STOP, _LEAVE = "control", "answers", "stop", "leave"
#: Seconds that workers have to end by themselves when a run is over.
_LEAVING_S = 1.0


def check_processes(run_context: RunContext) -> None:
    """Do nothing if the questions can be spread over processes, or are not to be.

    Raises:
        ConfigError: they cannot.
    """
    n = run_context.config.processes
    if n == 1:
        return
    cure = "leave --processes out"
    if sys.platform != "linux":
        raise ConfigError(f"--processes {n} works on Linux alone; {cure}, or run shards (--shard)")
    for lm in (run_context.lm, *run_context.role_lms.values()):
        if not isinstance(lm.metered.client, HostedClient):
            raise ConfigError(
                f"--processes {n} asks HTTP servers alone; {lm.model} is a local model or goes "
                f"through LiteLLM: {cure}"
            )
    for model in models_in_process(run_context.retriever):
        raise ConfigError(
            f"--processes {n} cannot share {model}, which computes in threads of this process; "
            f"{cure}"
        )


class _Answer(NamedTuple):
    """What a worker sends of a question: the line of its record, and texts that are to be kept."""

    line: bytes
    texts: Sequence[Mapping[str, Any]]


class Processes:
    """Worker processes with so many threads in all; for a `with` block in the main thread."""

    def __init__(
        self,
        n: int,
        run_context: RunContext,
        todo: Sequence[dspy.Example],
        *,
        threads: int,
        sent: SentCalls,
        prompts: PromptLog | None,
    ) -> None:
        self._sent, self._prompts = sent, prompts
        self._free: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
        self._controls: list[Connection] = []
        self._serving: list[threading.Thread] = []
        self._closed = False
        self._key = secrets.token_bytes(16)
        self._listener = Listener(family="AF_UNIX", backlog=threads, authkey=self._key)
        worker = _Worker(self._listener, self._key, run_context, todo, prompts)
        shares = [len(range(i, threads, n)) for i in range(n)]
        self._processes = [
            get_context("fork").Process(target=worker.run, args=(share,), daemon=True)
            for share in shares
        ]

    def __enter__(self) -> Self:
        gc.freeze()  # what is there by now stays shared: a collection would write to all of it
        try:
            for process in self._processes:
                process.start()
        finally:
            gc.unfreeze()
        for work in (self._accept, self._watch):
            self._start(work)
        return self

    def __exit__(self, *error: object) -> None:
        self._closed = True
        self._tell(_LEAVE)
        for process in self._processes:
            process.join(_LEAVING_S)
            process.kill()
            process.join()
        with suppress(OSError):  # wakes the thread that accepts
            Client(self._listener.address, authkey=self._key).close()
        self._listener.close()

    def stop(self) -> None:
        """Let the workers begin nothing more, as after Ctrl-C."""
        self._tell(_STOP)

    def _tell(self, message: str) -> None:
        for control in self._controls:
            with suppress(OSError):  # it died
                send(control, message)

    def ask(self, example: dspy.Example) -> Record:
        """As `ragbench.experiments.runs.question.ask`, in the next worker that is free.

        Raises:
            RunError: no worker is left.
        """
        worker = self._given(example.qid)
        file, start = self._sent.of(example.qid), time.perf_counter()
        with open_ledger(file) as ledger:
            try:
                while isinstance(message := receive(worker), Call):
                    ledger.file(message)
            except (EOFError, OSError):
                return lost(example, ledger, latency_s=time.perf_counter() - start)
        self._free.put(worker)
        if self._prompts:
            for text in message.texts:
                self._prompts.add(text)
        return parse_line(message.line)

    def _given(self, qid: str) -> Connection:
        """The thread of a worker that took the question."""
        while (worker := self._free.get()) is not None:
            with suppress(OSError):  # it died while it had nothing to do
                send(worker, qid)
                return worker
        self._free.put(None)
        raise RunError(
            f"all {len(self._processes)} worker processes died, perhaps for want of memory; give "
            "the same command again, with fewer --processes"
        )

    def _start(self, work: Callable[..., None], *args: object) -> None:
        threading.Thread(target=copy_context().run, args=(work, *args), daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            with suppress(Exception):  # a worker that died while it connected
                self._start(self._serve, self._listener.accept())

    def _serve(self, channel: Connection) -> None:
        try:
            first = receive(channel)
        except (EOFError, OSError):
            return
        if first == _FIRST_CONTROL:
            self._controls.append(channel)
            with suppress(EOFError, OSError):
                while True:
                    show(*receive(channel))
        elif first == _FIRST_ANSWERS:
            self._free.put(channel)
        else:
            with channel:
                serve(channel, first)

    def _watch(self) -> None:
        left = {process.sentinel for process in self._processes}
        while left:
            left -= set(wait(list(left)))
        self._free.put(None)


@dataclass(frozen=True)
class _Worker:
    """What a worker process does."""

    listener: Listener
    key: bytes
    run_context: RunContext
    todo: Sequence[dspy.Example]
    prompts: PromptLog | None

    def run(self, threads: int) -> None:
        """Answer questions in so many threads until the parent says so, or dies."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches all; the parent tells of it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        examples = {example.qid: example for example in self.todo}
        control = self._connected(_FIRST_CONTROL)
        show_by(lambda *shown: send(control, shown))
        link = Elsewhere(Link(str(self.listener.address), self.key))
        with use(current().plus(link)):
            for _ in range(threads):
                work = partial(copy_context().run, self._answer, examples)
                threading.Thread(target=work, daemon=True).start()
        with suppress(EOFError, OSError):
            while receive(control) == _STOP:
                stopping.stop_all()
        os._exit(0)

    def _connected(self, first: str) -> Connection:
        channel = Client(self.listener.address, authkey=self.key)
        send(channel, first)
        return channel

    def _answer(self, examples: Mapping[str, dspy.Example]) -> None:
        channel, sending = self._connected(_FIRST_ANSWERS), threading.Lock()

        def tell(call: Call) -> None:
            with sending:  # threads of one question call at once
                send(channel, call)

        while True:
            texts: list[Mapping[str, Any]] = []
            keep = partial(self.prompts.keep, write=texts.append) if self.prompts else None
            example = examples[receive(channel)]
            record = ask(self.run_context.program, example, also=tell, keep=keep)
            send(channel, _Answer(encode(record), texts))
