"""Makes calls to one server: breaker, rate limit, limits of spending, retries and the ledger.

Calls to LMs, to embedders and to rerankers all go through a `Caller`; what differs is the function
that sends one request.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic

from dspy import lm15
from dspy.lm15 import LM15Error

from ragbench.lms.calls.breaker import Breaker
from ragbench.lms.calls.limits import Amount, Attempt, CallRefusedError, Reply, Scope, Value
from ragbench.lms.calls.rate import RateLimit
from ragbench.logs import fields, get
from ragbench.record import FailedAttempts

#: What may be otherwise at the next attempt.
TRANSIENT = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)
#: Seconds before a call that was rejected goes again; doubled for each further rejection.
REJECTED_S, LONGEST_WAIT_S = 0.05, 60.0
#: A Retry-After of an overloaded server that is longer is not waited for.
LONGEST_RETRY_S = 120.0

_log = get(__name__)


@dataclass(frozen=True)
class Retries:
    """How often and after how long a failed attempt is made again.

    Overload and lost connections are tried again `limit` times, a time-out once: each costs a whole
    time limit. Rejections (HTTP 429) are not counted where a rate limit spaces the calls. The wait
    doubles from `base_s` with seeded jitter, and is no shorter than a server's Retry-After.
    """

    limit: int = 4
    base_s: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class CallSpec(Generic[Value]):
    """What is asked: `send` makes one request, and raises if it fails.

    `prompt` is a hash that tells prompts apart, and `most` the most that an attempt may take: its
    cost is infinite where not known, and its calls are 0 where no model is asked. An error may have
    `billed`, a `FailedAttempts`: what its attempt was billed all the same.
    """

    send: Callable[[], Reply[Value]]
    prompt: int
    most: Amount


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
        try:
            while (reply := made.once()) is None:
                pass
        except Exception as error:
            if made.last is not None:
                took = {"attempts": made.sent, "latency_s": made.seconds, "failed": made.failed}
                file_failure(made.last, **took)
                made.log("call failed", made.seconds)
            if error is made.last:
                made.scope.check_time()  # what broke off the last attempt is no fault of the server
            raise
        return Answered(reply, made.sent, made.seconds, made.failed)


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

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def once(self) -> Reply[Value] | None:
        """The reply to one attempt; None where it failed, and it was waited for the next.

        Raises:
            CallRefusedError: limits, breaker or rate let no attempt pass.
            Exception: it failed, and none follows.
        """
        asked, caller = self.asked, self.caller
        attempt = Attempt(asked.prompt, asked.most.tokens, self.scope)
        try:
            with ExitStack() as around:
                if caller.breaker is not None:
                    caller.breaker.enter(attempt)
                    around.callback(caller.breaker.leave, attempt)
                if caller.rate is not None:
                    turn = caller.rate.enter(attempt)
                    around.callback(caller.rate.leave, turn, attempt)
                scope = self.scope if caller.reserves else Scope()
                reservation = around.enter_context(scope.reserved(asked.most))
                reservation.taken = Amount(0)
                try:
                    reply = asked.send()
                except CallRefusedError:
                    raise
                except Exception as error:
                    self.sent += 1
                    attempt.error = self.last = error
                    reservation.taken = Amount(asked.most.calls)
                    if lost := getattr(error, "billed", None):
                        self.failed = self.failed + lost if self.failed else lost
                        took = lost.prompt_tokens + lost.completion_tokens
                        reservation.take(tokens=took, cost=lost.cost_usd, calls=asked.most.calls)
                    raise
                self.sent += 1
                attempt.reply = reply
                reservation.take(tokens=reply.tokens, cost=reply.cost_usd, calls=asked.most.calls)
                return reply
        except CallRefusedError:
            raise
        except Exception as error:
            wait = self._wait_s(error)
            if wait is None:
                raise
            if wait:
                self.log("waiting to try again", wait)
                self.scope.sleep(wait)
            return None

    def _wait_s(self, error: Exception) -> float | None:
        """Seconds until the next attempt after one that failed with `error`; None: none follows."""
        caller, retries = self.caller, self.caller.retries
        if caller.breaker is not None and caller.breaker.holds(error):
            return 0.0
        after = (error.retry_after or 0.0) if isinstance(error, LM15Error) else 0.0
        if isinstance(error, lm15.RateLimitError) and caller.rate is not None:
            self._rejected += 1
            wait = min(REJECTED_S * 2.0 ** min(self._rejected, 20), LONGEST_WAIT_S)
        else:
            self._counted += 1
            most = min(retries.limit, 1) if isinstance(error, lm15.TimeoutError) else retries.limit
            again = isinstance(error, TRANSIENT) and self._counted <= most
            if not again or after > LONGEST_RETRY_S:
                return None
            wait = retries.base_s * 2.0 ** (self._counted - 1)
        jitter = caller.random.random()
        return max(wait * (0.5 + 0.5 * jitter), after and after + 0.25 * jitter)

    def log(self, event: str, seconds: float) -> None:
        """One line on the last attempt that failed."""
        error = f"{type(self.last).__name__}: {self.last}"[:500]
        about = {"model": self.caller.model, "attempt": self.sent, "error": error}
        _log.info(event, extra=fields(**about, seconds=round(seconds, 3)))
