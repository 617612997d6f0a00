"""What a worker process does: it answers questions, under the limits of the one that started it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import dspy

from ragbench import stopping
from ragbench.context import current, use
from ragbench.errors import MissingExtraError
from ragbench.experiments.records import PromptLog, encode
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.question import ask
from ragbench.lms.calls import Elsewhere
from ragbench.lms.link import Address, Link, PackedError, connect, receive, send
from ragbench.logs import send_by, show_by
from ragbench.record import Call

#: What a connection begins with, where it is not for calls.
CONTROL, ANSWERS = "control", "answers"
#: What a control connection is told: begin nothing more; end.
STOP, LEAVE = "stop", "leave"


class Answer(NamedTuple):
    """What a worker sends of a question: the line of its record, and texts that are to be kept."""

    line: bytes
    texts: Sequence[Mapping[str, Any]]


class Shown(NamedTuple):
    """What a worker would have shown on its terminal; see `ragbench.logs.show`."""

    event: tuple[str, str]
    text: str


@dataclass(frozen=True)
class Worker:
    """Answers questions of `run_context` for the pool at `address`."""

    run_context: RunContext
    address: Address
    key: bytes

    def run(self, threads: int, *, sends_log: bool = False) -> None:
        """Answer questions in so many threads until the pool says so, or is gone.

        `sends_log`: this process cannot write to the log file of the run, so the pool does.
        """
        control, telling = self._connected(CONTROL), threading.Lock()

        def tell(message: object) -> None:
            with telling, suppress(OSError):  # the pool is gone
                send(control, message)

        show_by(lambda event, text: tell(Shown(event, text)))
        with send_by(tell if sends_log else None):
            link = Elsewhere(Link(self.address, self.key))
            examples = {example.qid: example for example in self.run_context.examples}
            config = self.run_context.config
            prompts = PromptLog(config.folder()) if config.prompts else None
            with use(current().plus(link)):
                for _ in range(threads):
                    work = partial(copy_context().run, self._answer_all, examples, prompts)
                    threading.Thread(target=work, daemon=True).start()
            with suppress(EOFError, OSError):
                while receive(control) == STOP:
                    stopping.stop_all()

    def _connected(self, first: str) -> Connection:
        channel = connect(self.address, self.key)
        send(channel, first)
        return channel

    def _answer_all(self, examples: Mapping[str, dspy.Example], prompts: PromptLog | None) -> None:
        with suppress(EOFError, OSError):  # the pool is gone
            channel = self._connected(ANSWERS)
            while True:
                self._answer(channel, examples[receive(channel)], prompts)

    def _answer(
        self, channel: Connection, example: dspy.Example, prompts: PromptLog | None
    ) -> None:
        texts: list[Mapping[str, Any]] = []
        keep = partial(prompts.keep, write=texts.append) if prompts else None
        try:
            record = ask(self.run_context.program, example, also=_teller(channel), keep=keep)
        except MissingExtraError as error:
            send(channel, PackedError.of(error))
        else:
            send(channel, Answer(encode(record), texts))


def _teller(channel: Connection) -> Callable[[Call], None]:
    sending = threading.Lock()  # threads of one question call at once

    def tell(call: Call) -> None:
        with sending:
            send(channel, call)

    return tell
