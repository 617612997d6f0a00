"""Makes calls to one server: rate limits, breaker, limits of spending, retries and the ledger.

Calls to LMs, to embedders and to rerankers all go through a `Caller`; what differs is the function
that sends one request.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from ragbench.context import current
from ragbench.lms.calls.middleware import Attempt, Holding, Middleware, Reply
from ragbench.lms.calls.refusal import CallRefusedError
from ragbench.lms.calls.retry import Retries
from ragbench.lms.calls.scope import Scope
from ragbench.lms.calls.spend_limits import Amount
from ragbench.logs import fields, get
from ragbench.record import FailedAttempts

Value = TypeVar("Value")
_log = get(__name__)
#: Characters of a server's message that a log line keeps.
_MESSAGE = 500


@dataclass(frozen=True)
class CallSpec(Generic[Value]):
    """What is asked: `send` makes one request, and raises if it fails.

    `prompt` is a hash that tells prompts apart, `prompt_tokens` an estimate, `reply_tokens` the
    most that comes back, and `cost_usd` the most that it may cost, infinite where not known.
    `billed` says what a failed attempt was billed, where its error tells it. `calls` is what an
    attempt counts for under a limit on calls: 0 where no model is asked.
    """

    send: Callable[[], Reply[Value]]
    prompt: int
    prompt_tokens: int
    reply_tokens: int
    cost_usd: float
    billed: Callable[[Exception], FailedAttempts | None] = lambda error: None
    calls: int = 1


@dataclass(frozen=True)
class Answered(Generic[Value]):
    """What came of a call after so many attempts; `latency_s` with all retries and waits.

    `failed` is what the attempts before the last were billed, as far as they told it.
    """

    reply: Reply[Value]
    attempts: int
    latency_s: float
    failed: FailedAttempts | None = None


class Decider(Protocol):
    """What decides on the calls of a worker process in its place: see `ragbench.lms.link`."""

    def call(
        self, caller: Caller, asked: CallSpec[Value], *, file_failure: Callable[..., None]
    ) -> Answered[Value]:
        """As `Caller.call`."""

    def turn(self, key: object) -> AbstractContextManager[Any]:
        """As `ragbench.lms.in_flight.turn`."""


@dataclass(frozen=True)
class Elsewhere:
    """The part of a context whose limits are kept in another process."""

    link: Decider


_numbers = itertools.count(1)
_callers: WeakValueDictionary[int, Caller] = WeakValueDictionary()


class Caller:
    """Makes calls to `model`; thread-safe.

    `holding` is middleware that may hold a failed call and let it go again beside its retries;
    what is appended to `middleware` only watches.
    """

    def __init__(self, model: str, *, retries: Retries, holding: Sequence[Holding] = ()) -> None:
        self.model, self.retries, self.holding = model, retries, tuple(holding)
        self.middleware: list[Middleware] = list(holding)
        #: Tells the callers of a process apart, and those that a fork of it has from it.
        self.number = next(_numbers)
        _callers[self.number] = self

    @staticmethod
    def numbered(number: int) -> Caller:
        """The caller of this number."""
        return _callers[number]

    def call(self, asked: CallSpec[Value], *, file_failure: Callable[..., None]) -> Answered[Value]:
        """What `asked` gives, after as many attempts as it takes.

        `file_failure` gets the error, the attempts, the latency and what they were billed of a
        call that failed after at least one request.

        Raises:
            CallRefusedError: the call was refused, perhaps after attempts that failed.
            Exception: what the last attempt failed with.
        """
        if (elsewhere := current().get(Elsewhere)) is not None:
            return elsewhere.link.call(self, asked, file_failure=file_failure)
        scope, start = Scope.current(), time.perf_counter()
        last: Attempt | None = None
        held = 0
        failed: FailedAttempts | None = None
        try:
            for number in itertools.count(1):
                attempt = self._attempt(asked, number, scope)
                self._send(attempt, asked)
                last = attempt
                if attempt.reply is not None:
                    return Answered(attempt.reply, number, time.perf_counter() - start, failed)
                assert attempt.error is not None
                if lost := asked.billed(attempt.error):
                    failed = failed + lost if failed else lost
                if any(one.holds(attempt, held) for one in self.holding):
                    held += 1
                    continue
                wait = self.retries.wait_s(attempt.error, number - held)
                if wait is None:
                    scope.check_time()  # what broke off the last attempt is no fault of the server
                    raise attempt.error
                _log.info("waiting to try again", extra=told(attempt, seconds=round(wait, 3)))
                scope.sleep(wait)
        except Exception as error:
            if isinstance(error, CallRefusedError):
                _log.info("call refused", extra=fields(model=self.model, why=str(error)[:_MESSAGE]))
            if last is not None and last.error is not None:
                seconds = time.perf_counter() - start
                told_of = {"attempts": last.number, "latency_s": seconds, "failed": failed}
                file_failure(last.error, **told_of)
                _log.info("call failed", extra=told(last, seconds=round(seconds, 3)))
            raise
        raise AssertionError("unreachable")

    def _attempt(self, asked: CallSpec[Any], number: int, scope: Scope) -> Attempt:
        return Attempt(
            model=self.model,
            number=number,
            prompt=asked.prompt,
            prompt_tokens=asked.prompt_tokens,
            reply_tokens=asked.reply_tokens,
            scope=scope,
        )

    def _send(self, attempt: Attempt, asked: CallSpec[Any]) -> None:
        """Send the attempt when the middleware lets it pass; tell that after.

        Raises:
            CallRefusedError: middleware, a limit of spending, a stop or the question's time.
        """
        passed: list[Middleware] = []
        amount = Amount(asked.calls, attempt.tokens, asked.cost_usd)
        try:
            for one in self.middleware:
                one.before_call(attempt)
                passed.append(one)
            with attempt.scope.reserved(amount) as reservation:
                reservation.taken = Amount(asked.calls)
                start = time.perf_counter()
                send(attempt, asked)
                attempt.latency_s = time.perf_counter() - start
                if reply := attempt.reply:
                    reservation.take(tokens=reply.tokens, cost=reply.cost_usd, calls=asked.calls)
                elif attempt.error and (lost := asked.billed(attempt.error)):
                    tokens = lost.prompt_tokens + lost.completion_tokens
                    reservation.take(tokens=tokens, cost=lost.cost_usd)
        finally:
            for one in passed:
                one.after_call(attempt)


def send(attempt: Attempt, asked: CallSpec[Any]) -> None:
    """Make the attempt, and put what came of it there.

    Raises:
        CallRefusedError: nothing was sent.
    """
    try:
        attempt.reply = asked.send()
    except CallRefusedError:
        raise
    except Exception as error:
        attempt.error = error


def told(attempt: Attempt, **more: Any) -> dict[str, Any]:
    """The fields of a log line on an attempt that failed."""
    error = f"{type(attempt.error).__name__}: {attempt.error}"[:_MESSAGE]
    return fields(model=attempt.model, attempt=attempt.number, error=error, **more)
