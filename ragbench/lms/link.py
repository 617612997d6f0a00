"""Calls of a worker process under the limits of the process that started it.

A worker sends its requests itself. Whether and when it may, and how often it tries again, is
decided where the limits are: there a thread makes the call by the same `Caller`, and what it would
send, the worker sends.

    worker                        the process with the limits
    Asked  --------------------->  rate limit, breaker, limits of spending
           <---------------------  Send
    Sent   --------------------->  what it took
           <---------------------  where it failed: after a wait another Send, or Ended

Requests that are the same and under way at once are sent once, in whatever worker (`Turn`).
A worker that dies in the middle of a request is taken to have used all that was reserved for it.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Client, Connection
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from ragbench.context import Deadline, current, use
from ragbench.lms.calls import (
    Answered,
    Caller,
    CallRefusedError,
    CallSpec,
    LimitReachedError,
    Reply,
    active,
    refuse,
)
from ragbench.lms.in_flight import Waited, turn
from ragbench.record import FailedAttempts

Value = TypeVar("Value")
OVER = "over"
#: Where a pool of workers listens: a Unix socket of this machine, or host and port.
Address = str | tuple[str, int]
#: Seconds until a machine that says nothing more counts as gone: silence, then so many questions.
_SILENT_S, _ASKED_EVERY_S, _ASKED = 15, 5, 3


@dataclass(frozen=True)
class PackedError:
    """An error as it goes from process to process, without what cannot."""

    kind: type[Exception]
    args: tuple[Any, ...]
    state: Mapping[str, Any]

    @classmethod
    def of(cls, error: Exception) -> PackedError:
        """`error`, packed."""
        plain = {
            name: dict(value) if isinstance(value, MappingProxyType) else value
            for name, value in vars(error).items()
        }
        kept = {name: value for name, value in plain.items() if _can_go(value)}
        kind = type(error) if _can_go(type(error)) else Exception
        return cls(kind, error.args if _can_go(error.args) else (str(error),), kept)

    def error(self) -> Exception:
        """The error, made again."""
        made = self.kind.__new__(self.kind, *self.args)
        made.args = self.args
        vars(made).update(self.state)
        return made


def _can_go(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # whatever a third party's `__reduce__` raises
        return False
    return True


class Asked(NamedTuple):
    """A call that a worker wants to make, as `CallSpec`; `caller` is the number of its `Caller`."""

    caller: int
    prompt: int
    prompt_tokens: int
    reply_tokens: int
    cost_usd: float
    qid: str | None
    deadline: Deadline | None
    calls: int


class Send(NamedTuple):
    """Tells the worker to make attempt `number`; `counts` are the events of earlier attempts."""

    number: int
    counts: Mapping[str, int]


class Sent(NamedTuple):
    """The outcome of an attempt: usage of its reply, or its error with what that was billed."""

    tokens: int = 0
    cost_usd: float | None = None
    headers: Mapping[str, Sequence[str]] = {}
    error: PackedError | None = None
    billed: FailedAttempts | None = None


class Ended(NamedTuple):
    """Tells that a call was refused or has failed for good; `failure` goes into the ledger."""

    refusal: PackedError | None
    failure: Mapping[str, Any]
    counts: Mapping[str, int]
    stopped_by: tuple[str, ...]


class Turn(NamedTuple):
    """A request that no other may send at the same time; see `ragbench.lms.in_flight`."""

    key: object
    deadline: Deadline | None


class Link:
    """A worker's end: makes calls and takes turns through the process at `address`."""

    def __init__(self, address: Address, key: bytes) -> None:
        self._address, self._key = address, key
        self._idle: list[Connection] = []

    @contextmanager
    def _channel(self) -> Iterator[Connection]:
        """A connection that no other thread uses meanwhile."""
        try:
            channel = self._idle.pop()
        except IndexError:
            channel = connect(self._address, self._key)
        yield channel  # after an error it is in the middle of something, and goes
        self._idle.append(channel)

    def call(
        self, caller: Caller, asked: CallSpec[Value], *, file_failure: Callable[..., None]
    ) -> Answered[Value]:
        """As `Caller.call`."""
        start, error, failed = time.perf_counter(), None, None
        with self._channel() as channel:
            send(channel, _asked(caller.number, asked))
            while isinstance(message := receive(channel), Send):
                try:
                    reply = asked.send()
                except Exception as raised:
                    error = raised
                    lost = asked.billed(error)
                    failed = failed + lost if failed and lost else failed or lost
                    send(channel, Sent(error=PackedError.of(error), billed=lost))
                    continue
                send(channel, Sent(reply.tokens, reply.cost_usd, dict(reply.headers)))
                _count(message.counts)
                return Answered(reply, message.number, time.perf_counter() - start, failed)
        ended: Ended = message
        _count(ended.counts)
        if ended.failure:
            file_failure(error, **ended.failure)
        if ended.refusal is not None:
            _refused(ended)
        assert error is not None
        raise error

    @contextmanager
    def turn(self, key: object) -> Iterator[Waited]:
        """As `InFlight.turn`, over all workers."""
        with self._channel() as channel:
            send(channel, Turn(key, current().deadline))
            answer = receive(channel)
            if isinstance(answer, Waited):
                try:
                    yield answer
                finally:
                    send(channel, OVER)
        if isinstance(answer, Ended):
            _refused(answer)


def connect(address: Address, key: bytes) -> Connection:
    """A connection to the pool at `address`, which knows the `key` too.

    Raises:
        OSError: it is gone.
        AuthenticationError: it has another key.
    """
    channel: Connection = Client(address, authkey=key)
    notice_silence(channel)
    return channel


def notice_silence(channel: Connection) -> None:
    """Let the connection to another machine end when that machine is gone without a word."""
    with socket.socket(fileno=os.dup(channel.fileno())) as own:
        if own.family == socket.AF_UNIX:
            return
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with suppress(AttributeError):  # a system that calls them otherwise keeps its own times
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_S)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASKED_EVERY_S)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _ASKED)
            longest_ms = 1000 * (_SILENT_S + _ASKED * _ASKED_EVERY_S)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, longest_ms)


def send(channel: Connection, message: object) -> None:
    """Send `message`, which the other end `receive`s; for one thread at a time."""
    channel.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def receive(channel: Connection) -> Any:
    """The next message.

    Raises:
        EOFError: the other end is gone.
        OSError: so it is, in another way.
    """
    return pickle.loads(channel.recv_bytes())


def _asked(number: int, asked: CallSpec[Any]) -> Asked:
    context = current()
    return Asked(
        number, asked.prompt, asked.prompt_tokens, asked.reply_tokens, asked.cost_usd,
        context.qid, context.deadline, asked.calls,
    )  # fmt: skip


def _count(events: Mapping[str, int]) -> None:
    counts = current().counts
    if events and counts is not None:
        counts.update(events)


def _refused(ended: Ended) -> None:
    """Take over why nothing may be begun, and refuse the call as it was refused there."""
    for mine, stopped_by in zip(active(), ended.stopped_by, strict=True):
        mine.stopped_by = stopped_by
    assert ended.refusal is not None
    error = ended.refusal.error()
    if isinstance(error, LimitReachedError):
        refuse(str(error))  # marks the question's ledger
    raise error


def serve(channel: Connection, first: object) -> None:
    """Make the calls that a worker asks for over `channel` until it closes it; `first` came."""
    message = first
    try:
        while True:
            if isinstance(message, Asked):
                _make(channel, message)
            elif isinstance(message, Turn):
                _give_turn(channel, message)
            message = receive(channel)
    except (EOFError, OSError):
        return


def _make(channel: Connection, asked: Asked) -> None:
    counts: Counter[str] = Counter()
    failure: dict[str, Any] = {}
    sent, number, refusal = Sent(), 0, None

    def attempt() -> Reply[None]:
        nonlocal sent, number
        number += 1
        try:
            send(channel, Send(number, dict(counts)))
            sent = receive(channel)
        except (EOFError, OSError):  # the worker is gone, and what it sent may be billed
            return Reply(None, asked.prompt_tokens + asked.reply_tokens, asked.cost_usd)
        if sent.error is not None:
            raise sent.error.error()
        return Reply(None, sent.tokens, sent.cost_usd, sent.headers)

    def file_failure(error: Exception, **took: Any) -> None:
        failure.update(took)

    spec = CallSpec(
        attempt, asked.prompt, asked.prompt_tokens, asked.reply_tokens, asked.cost_usd,
        lambda error: sent.billed, asked.calls,
    )  # fmt: skip
    with use(replace(current(), qid=asked.qid, deadline=asked.deadline, counts=counts)):
        try:
            Caller.numbered(asked.caller).call(spec, file_failure=file_failure)
            return
        except CallRefusedError as error:
            refusal = PackedError.of(error)
        except Exception:  # the worker has it, and raises it
            pass
    send(channel, Ended(refusal, failure, counts, _stopped_by()))


def _give_turn(channel: Connection, asked: Turn) -> None:
    try:
        with use(replace(current(), deadline=asked.deadline)), turn(asked.key) as waited:
            send(channel, waited)
            receive(channel)  # that it is over
    except CallRefusedError as error:
        send(channel, Ended(PackedError.of(error), {}, {}, _stopped_by()))


def _stopped_by() -> tuple[str, ...]:
    return tuple(one.stopped_by for one in active())
