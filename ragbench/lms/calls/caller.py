"""Makes calls to one server: rate limits, breaker, limits of spending, retries and the ledger.

Calls to LMs, to embedders and to rerankers all go through a `Caller`; what differs is the function
that sends one request.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

from dspy import lm15
from dspy.lm15 import LM15Error
from tenacity import RetryCallState, Retrying, retry_if_exception

from ragbench.lms.calls.breaker import Breaker
from ragbench.lms.calls.limits import (
    Amount,
    Attempt,
    CallRefusedError,
    Reply,
    Reservation,
    Scope,
    Value,
)
from ragbench.lms.calls.rate import LONGEST_RESET_S, RateLimit
from ragbench.logs import fields, get
from ragbench.record import FailedAttempts

#: What may be otherwise at the next attempt.
TRANSIENT = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)
#: Seconds before a call that was rejected goes again; doubled for each further rejection.
REJECTED_S, LONGEST_WAIT_S = 0.05, 60.0
#: A call that was rejected for so long while others were answered is given up.
REJECTED_FOR_S = 600.0

_log = get(__name__)
#: Characters of a server's message that a log line keeps.
_MESSAGE = 500


@dataclass(frozen=True)
class Retries:
    """How often and after how long a failed attempt is made again.

    Overload and lost connections are tried again `limit` times, a time-out once: each costs a whole
    time limit. Rejections (HTTP 429) are not counted where a rate limit spaces the calls. The wait
    doubles from `base_s` with seeded jitter; it is no shorter than a server's Retry-After, and one
    over `longest_s` is given up.
    """

    limit: int = 4
    timeouts: int = 1
    base_s: float = 1.0
    longest_s: float = 120.0
    seed: int = 0


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


class Caller:
    """Makes calls to `model`; thread-safe. `reserves` is false where others reserved for it."""

    def __init__(
        self,
        model: str,
        *,
        retries: Retries,
        breaker: Breaker | None = None,
        rate: RateLimit | None = None,
        reserves: bool = True,
    ) -> None:
        self.model, self.retries, self.breaker, self.rate = model, retries, breaker, rate
        self.reserves = reserves
        self.random = random.Random(retries.seed)

    def call(self, asked: CallSpec[Value], *, file_failure: Callable[..., None]) -> Answered[Value]:
        """What `asked` gives, after as many attempts as it takes.

        `file_failure` gets the error, the attempts, the latency and what they were billed of a
        call that failed after at least one request.

        Raises:
            CallRefusedError: the call was refused, perhaps after attempts that failed.
            Exception: what the last attempt failed with.
        """
        made = _Attempts(self, asked, Scope.current())
        retrying = Retrying(
            retry=retry_if_exception(made.again),
            wait=made.wait_s,
            sleep=made.scope.sleep,
            reraise=True,
        )
        try:
            reply = retrying(made.once)
            return Answered(reply, made.sent, time.perf_counter() - made.start, made.failed)
        except Exception as error:
            seconds = time.perf_counter() - made.start
            if isinstance(error, CallRefusedError):
                _log.info("call refused", extra=fields(model=self.model, why=str(error)[:_MESSAGE]))
            if made.last is not None:
                took = {"attempts": made.sent, "latency_s": seconds, "failed": made.failed}
                file_failure(made.last, **took)
                _log.info("call failed", extra=made.told(seconds))
            if error is made.last:
                made.scope.check_time()  # what broke off the last attempt is no fault of the server
            raise


@dataclass
class _Attempts(Generic[Value]):
    """The attempts at one call: each in its turn, and whether another follows."""

    caller: Caller
    asked: CallSpec[Value]
    scope: Scope
    start: float = field(default_factory=time.perf_counter)
    sent: int = 0
    failed: FailedAttempts | None = None
    last: Exception | None = None
    _counted: int = 0  # attempts that used up a retry
    _rejected: int = 0

    def once(self) -> Reply[Value]:
        """The reply to one attempt, when limits, breaker and rate let it pass.

        Raises:
            CallRefusedError: they do not.
            Exception: it failed.
        """
        asked, breaker, rate = self.asked, self.caller.breaker, self.caller.rate
        attempt = Attempt(asked.prompt, asked.prompt_tokens, asked.reply_tokens, self.scope)
        if not self.caller.reserves:
            return self._send(attempt, Reservation(Amount(0)))
        self.scope.check()
        if breaker is not None:
            breaker.enter(attempt)
        try:
            turn = None if rate is None else rate.enter(attempt)
            try:
                most = Amount(asked.calls, attempt.tokens, asked.cost_usd)
                with self.scope.reserved(most) as reservation:
                    return self._send(attempt, reservation)
            finally:
                if rate is not None and turn is not None:
                    rate.leave(turn, attempt)
        finally:
            if breaker is not None:
                breaker.leave(attempt)

    def _send(self, attempt: Attempt, reservation: Reservation) -> Reply[Value]:
        asked = self.asked
        reservation.taken = Amount(0)
        try:
            reply = asked.send()
        except CallRefusedError:
            raise
        except Exception as error:
            self.sent += 1
            attempt.error = self.last = error
            reservation.taken = Amount(asked.calls)
            if lost := asked.billed(error):
                self.failed = self.failed + lost if self.failed else lost
                took = lost.prompt_tokens + lost.completion_tokens
                reservation.take(tokens=took, cost=lost.cost_usd, calls=asked.calls)
            raise
        self.sent += 1
        attempt.reply = reply
        reservation.take(tokens=reply.tokens, cost=reply.cost_usd, calls=asked.calls)
        return reply

    def again(self, error: BaseException) -> bool:
        """Whether another attempt follows one that failed with `error`."""
        if isinstance(error, CallRefusedError):
            return False
        if self.caller.breaker is not None and self.caller.breaker.holds(error):
            return True
        retries = self.caller.retries
        if isinstance(error, lm15.RateLimitError) and self.caller.rate is not None:
            self._rejected += 1
            late = time.perf_counter() - self.start > REJECTED_FOR_S
            return not late and (error.retry_after or 0.0) <= LONGEST_RESET_S
        self._counted += 1
        most = retries.timeouts if isinstance(error, lm15.TimeoutError) else retries.limit
        if self._counted > most or not isinstance(error, TRANSIENT):
            return False
        return self._retry_after(error) <= retries.longest_s

    def wait_s(self, state: RetryCallState) -> float:
        """Seconds until the next attempt."""
        error = state.outcome.exception() if state.outcome else None
        if error is None or (self.caller.breaker and self.caller.breaker.holds(error)):
            return 0.0
        retries, jitter = self.caller.retries, self.caller.random.random()
        wait = retries.base_s * 2.0 ** (self._counted - 1)
        if self._rejected and isinstance(error, lm15.RateLimitError):
            wait = min(REJECTED_S * 2.0 ** min(self._rejected, 20), LONGEST_WAIT_S)
        wait *= 0.5 + 0.5 * jitter
        if after := self._retry_after(error):
            wait = max(wait, after + 0.25 * jitter)
        _log.info("waiting to try again", extra=self.told(wait))
        return wait

    def told(self, seconds: float) -> dict[str, Any]:
        """The fields of a log line on the last attempt that failed."""
        error = f"{type(self.last).__name__}: {self.last}"[:_MESSAGE]
        about = {"model": self.caller.model, "attempt": self.sent, "error": error}
        return fields(**about, seconds=round(seconds, 3))

    @staticmethod
    def _retry_after(error: BaseException) -> float:
        return (error.retry_after or 0.0) if isinstance(error, LM15Error) else 0.0
