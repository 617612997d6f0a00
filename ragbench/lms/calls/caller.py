"""Calls to one server: breaker, rate limit, spending limits, retries and the ledger.

Calls to LMs, embedders and rerankers all pass through a `Caller`. They differ only in the function
that sends one request.

If all calls to a server fail, its breaker opens: calls wait instead of failing, and after growing
pauses one call probes the server. If this takes too long or the server cannot recover, the breaker
is broken: calls are refused and the command ends.
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass

from dspy import lm15
from dspy.lm15 import LM15Error

from ragbench.errors import LMSetupError, LMUnavailableError, RagbenchError
from ragbench.ledger import current_ledger
from ragbench.lms.calls.limits import (
    Amount,
    Attempt,
    CallRefusedError,
    Reply,
    Scope,
    Value,
    limit_reached,
    refuse,
    stop,
)
from ragbench.lms.calls.rate import RateLimit
from ragbench.lms.calls.refusals import is_of_prompt, means_of
from ragbench.logs import get
from ragbench.record import FailedAttempts
from ragbench.redact import redact

#: Errors that may not occur at the next attempt.
TRANSIENT = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)
#: Seconds until a rejected call is sent again, doubled for each further rejection.
REJECTED_S, LONGEST_WAIT_S = 0.05, 60.0
#: A longer Retry-After of an overloaded server makes the call fail at once.
LONGEST_RETRY_S = 120.0

#: A server is down after this many failed attempts in a row with this many different prompts.
IN_A_ROW = 10
PROMPTS = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
PATIENCE_S = 600.0

_log = get(__name__)


def empty_reply(ending: str, usage: lm15.Usage) -> lm15.ServerError:
    """Return the error of a reply without text or tool call. The call is sent once more.

    Args:
        ending: Reason with which the server ended the reply.
        usage: Tokens that the server counted.
    """
    error = lm15.ServerError(f"the reply has no content, and ended with {ending!r}", status=200)
    error.usage = usage
    error.once_more = True
    return error


@dataclass(eq=False)
class Caller:
    """Sends calls to `model` with retries. Thread-safe.

    `reserves` is False if the usage is already reserved.

    Overload and lost connections are retried up to `retries` times, a timeout once, because each
    costs a whole time limit. Rejections (HTTP 429) are not counted if a rate limit spaces the
    calls. The wait doubles from `base_s` with seeded jitter, and is not shorter than the server's
    Retry-After.
    """

    base_s = 1.0

    model: str
    _: KW_ONLY
    retries: int = 4
    seed: int = 0
    breaker: Breaker | None = None
    rate: RateLimit | None = None
    reserves: bool = True

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def call(
        self,
        send: Callable[[], Reply[Value]],
        *,
        prompt: int,
        most: Amount,
        file_failure: Callable[..., None],
    ) -> Reply[Value]:
        """Return the result of `send` after as many attempts as necessary.

        Args:
            send: Function that sends one request. Its error may have an attribute `billed`, a
                `FailedAttempts` with the usage of the failed attempt.
            prompt: Hash that distinguishes prompts.
            most: Maximum usage of an attempt. Its cost is infinite if unknown. Its calls are 0 if
                the request is not a model call.
            file_failure: Called with the error, the attempts, the latency and the billed usage of a
                call that failed after at least one request.

        Returns:
            The reply, with its attempts and its latency.

        Raises:
            CallRefusedError: The call was refused, perhaps after failed attempts.
            Exception: The error of the last attempt.
        """
        scope = Scope.current()
        start = time.perf_counter()
        sent = counted = rejected = 0
        failed: FailedAttempts | None = None
        failure: Exception | None = None

        try:
            while True:
                try:
                    reply = self._attempt(send, Attempt(prompt, most.tokens, scope), most)
                    reply.attempts = sent + 1
                    reply.latency_s = time.perf_counter() - start
                    reply.failed = failed
                    return reply
                except CallRefusedError:
                    raise
                except Exception as error:
                    sent = sent + 1
                    failure = error
                    if lost := getattr(error, "billed", None):
                        failed = failed + lost if failed else lost
                    if self.breaker is not None and self.breaker.holds(error):
                        continue  # the breaker makes it wait
                    if getattr(error, "negotiated", False):
                        continue  # send it in the form that the server accepts
                    if isinstance(error, lm15.RateLimitError) and self.rate is not None:
                        wait = min(REJECTED_S * 2.0 ** min(rejected, 20), LONGEST_WAIT_S)
                        rejected += 1
                    else:
                        counted += 1
                        wait = self.base_s * 2.0 ** (counted - 1)
                        if not self._tries_again(error, counted):
                            if self.breaker is not None:
                                self.breaker.interrupt_if_unknown(error)
                            raise
                    after = 0.0
                    if isinstance(error, LM15Error):  # other classes may store text
                        after = error.retry_after or 0.0
                    jitter = self.random.random()
                    scope.sleep(max(wait * (0.5 + 0.5 * jitter), after and after + 0.25 * jitter))
        except Exception as error:
            if failure is not None:
                seconds = time.perf_counter() - start
                file_failure(failure, attempts=sent, latency_s=seconds, failed=failed)
            if error is failure:
                scope.check_time()  # the server did not cause the end of the last attempt
            raise

    def _attempt(
        self, send: Callable[[], Reply[Value]], attempt: Attempt, most: Amount
    ) -> Reply[Value]:
        """Return the reply to one request, sent when breaker, rate limit and limits let it."""
        with ExitStack() as around:
            if self.breaker is not None:
                self.breaker.enter(attempt)
                around.callback(self.breaker.leave, attempt)
            if self.rate is not None:
                turn = self.rate.enter(attempt)
                around.callback(self.rate.leave, turn, attempt)
            scope = attempt.scope if self.reserves else Scope()
            reservation = around.enter_context(scope.reserved(most))
            reservation.taken = Amount(0)
            try:
                reply = attempt.reply = send()
            except CallRefusedError:
                raise
            except Exception as error:
                attempt.error = error
                reservation.taken = Amount(most.calls)
                if lost := getattr(error, "billed", None):
                    tokens = lost.prompt_tokens + lost.completion_tokens
                    reservation.take(tokens=tokens, cost=lost.cost_usd, calls=most.calls)
                elif most.tokens and _is_unanswered(error):
                    reservation.taken = most  # the server may have done the work, and bills it
                    usd = most.cost if math.isfinite(most.cost) else None
                    lost = FailedAttempts(0, 0, 0.0, 1, most.tokens, usd)
                    error.billed = lost  # type: ignore[attr-defined]
                raise
            reservation.take(tokens=reply.tokens, cost=reply.cost_usd, calls=most.calls)
            return reply

    def _tries_again(self, error: Exception, counted: int) -> bool:
        """Return True if to try again after `counted` failed attempts, the last with `error`."""
        most = self.retries
        if isinstance(error, lm15.TimeoutError) or getattr(error, "once_more", False):
            most = min(most, 1)
        waits = (getattr(error, "retry_after", None) or 0.0) <= LONGEST_RETRY_S
        return isinstance(error, TRANSIENT) and counted <= most and waits


class Breaker:
    """Pauses all calls to a server after a series of failures.

    `patience` is the number of seconds after which it gives up. `key_variable` names the
    environment variable of the key in messages.
    """

    def __init__(
        self,
        model: str,
        *,
        patience: float = PATIENCE_S,
        key_variable: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.patience = patience
        self._key = key_variable
        self._clock = clock
        #: Reason why calls are refused from now on. None if they are not.
        self.broken: RagbenchError | None = None
        self._changed = threading.Condition()
        self._failed = 0
        self._prompts: set[int] = set()
        #: Text of the last refusal, and the prompts that were refused in a row with it.
        self._words = ""
        self._refused: set[int] = set()
        #: Unknown text -> the prompts that were refused with it.
        self._unknown: dict[str, set[int]] = {}
        #: Since when calls wait. None while they pass.
        self.opened_at: float | None = None
        self._rejected_since = math.inf
        self._pause = FIRST_PAUSE_S
        self._probe_at = 0.0

    def enter(self, attempt: Attempt) -> None:
        """Let the attempt pass if the server answers.

        Raises:
            LimitReachedError: The server will not answer.
        """
        with self._changed:
            while self.opened_at is not None and not self.broken:
                now = self._clock()
                if now >= self._probe_at:  # it probes, and the next one does after a longer pause
                    self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
                    self._probe_at = now + self._pause
                    return
                attempt.scope.wait(self._changed, self._probe_at - now)
        if self.broken is not None:
            refuse(str(self.broken))

    def leave(self, attempt: Attempt) -> None:
        """Count a failure of the server. Any other outcome shows that it is running."""
        error = attempt.error
        now = self._clock()
        with self._changed:
            # A call that was aborted by a time limit or a stop does not show the server's state.
            silent = attempt.reply is None and (error is None or attempt.scope.over())
            silent = silent or getattr(error, "of_batch", False)
            if self.broken is not None or silent or getattr(error, "negotiated", False):
                return
            down = error is not None and _shows_outage(error)
            if not down:
                self._failed = 0
                self._prompts.clear()
            ends = None
            if error is None:
                self._rejected_since = math.inf
                self._refused.clear()
            else:
                ends = self._lasting(error, now) or self._refuses_all(error, attempt.prompt)
                if down and not ends:
                    ends = self._outage(error, attempt.prompt, now)
            if ends:
                self.broken = ends
                stop(ends, by=self.model, spent=attempt.scope.spent)
            elif self.opened_at is not None and not down:
                _log.warning("%s answers again after %.0f s", self.model, now - self.opened_at)
                self.opened_at = None
                self._pause = FIRST_PAUSE_S
            else:
                return
            self._changed.notify_all()

    def holds(self, error: BaseException) -> bool:
        """Return True if a failed call only has to wait until the server is running again.

        If the server will stay down and a command ends for it, the call is refused then, so that
        its question counts as interrupted and not as failed.
        """
        if self.broken is not None and limit_reached() is not None:
            return isinstance(error, LM15Error) and not is_of_prompt(error)
        return self.opened_at is not None and _shows_outage(error)

    def _lasting(self, error: Exception, now: float) -> RagbenchError | None:
        """Return the error that ends all calls: a lasting one, or rejections for too long."""
        again = "the same command continues"
        rejected = isinstance(error, lm15.RateLimitError)
        self._rejected_since = min(self._rejected_since, now) if rejected else math.inf
        if isinstance(error, lm15.AuthError) and not _forbidden(error):
            where = f" in {self._key}" if self._key else ""
            if means_of(error) == "account":
                return LMSetupError(f"{self.model} refuses this account: {reason(error)}")
            return LMSetupError(
                f"{self.model} refuses the key: {reason(error)}; give a valid one{where}"
            )
        if isinstance(error, lm15.BillingError):
            why = f"demands payment: {reason(error)}; {again} afterwards"
        elif rejected and (away := getattr(error, "retry_after", None) or 0) > self.patience:
            minutes = math.ceil(away / 60)
            why = f"takes no more calls for {minutes} minutes: {reason(error)}; {again} then"
        elif now - self._rejected_since > self.patience:
            why = f"has rejected every call for {self.patience:.0f} s: {reason(error)}; "
            why += f"{again} when it takes calls again"
        else:
            return None
        return LMUnavailableError(f"{self.model} {why}")

    def _refuses_all(self, error: Exception, prompt: int) -> RagbenchError | None:
        """Return the error that ends a command if all prompts are refused with the same text.

        It handles texts that the table of refusals does not know. Refusals of single prompts would
        differ.
        """
        if not _is_refusal(error):
            return None
        words = _pattern_of(error)
        self._unknown.setdefault(words, set()).add(prompt)
        if words != self._words:
            self._words = words
            self._refused.clear()
        self._refused.add(prompt)
        if len(self._refused) < PROMPTS:
            return None
        return LMSetupError(
            f"{self.model} refused {len(self._refused)} different prompts in the same words: "
            f"{reason(error)}; fix its cause, and the same command continues"
        )

    def interrupt_if_unknown(self, error: Exception) -> None:
        """Interrupt the question if `error` is a refusal in words that are not known yet.

        It may concern the account. After three prompts in the same words it counts as a failure.
        """
        ledger = current_ledger()
        if ledger is None or not _is_refusal(error) or means_of(error):
            return
        with self._changed:
            unclear = len(self._unknown.get(_pattern_of(error), ())) < PROMPTS
        if unclear and not ledger.interrupted:
            ledger.interrupted = reason(error)
            _log.warning(
                "%s refuses in unknown words, so the question counts as interrupted: %s",
                self.model, ledger.interrupted,
            )  # fmt: skip

    def _outage(self, error: Exception, prompt: int, now: float) -> RagbenchError | None:
        """Open after enough failures in a row. Return the error that ends a long outage."""
        self._failed += 1
        self._prompts.add(prompt)
        is_open = self.opened_at is not None
        if not is_open and (self._failed < IN_A_ROW or len(self._prompts) < PROMPTS):
            return None
        if _forbidden(error):
            return LMSetupError(
                f"{self.model} refuses every call: {reason(error)}; give another key or model"
            )
        down_s = now - self.opened_at if self.opened_at is not None else 0.0
        if down_s + self._pause > self.patience:
            return LMUnavailableError(
                f"{self.model} has been down for {down_s:.0f} s: {reason(error)}; "
                "the same command continues when it is back"
            )
        if not is_open:
            self.opened_at = now
            self._probe_at = now + self._pause
            _log.warning(
                "%s is down; pausing calls and probing with growing pauses for at most "
                "%.0f s: %s", self.model, self.patience, reason(error),
            )  # fmt: skip
        return None


def _is_refusal(error: Exception) -> bool:
    status = getattr(error, "status", None) or 0
    return 400 <= status < 500 and not isinstance(error, TRANSIENT) and not is_of_prompt(error)


def _pattern_of(error: Exception) -> str:
    return re.sub(r"\d+", "0", reason(error))


def _is_unanswered(error: Exception) -> bool:
    """Return True if a request was sent, and neither a status nor known words refuse it."""
    refused = (getattr(error, "status", None) or 0) >= 300 or bool(means_of(error))
    return not refused and not getattr(error, "unsent", False)


def _shows_outage(error: BaseException | None) -> bool:
    down = (lm15.ServerError, lm15.TransportError, lm15.TimeoutError)
    return isinstance(error, down) or _forbidden(error)


def _forbidden(error: BaseException | None) -> bool:
    # Some gateways answer a filtered prompt with 403, too.
    status = getattr(error, "status", None) or 0
    refused = isinstance(error, lm15.AuthError) and status == 403 and not means_of(error)
    return refused or 300 <= status < 400 or isinstance(error, lm15.UnsupportedModelError)


def reason(error: Exception) -> str:
    """Return the first line of the server's message, with its status."""
    message = getattr(error, "message", "") or str(error)
    status = getattr(error, "status", None)
    line = redact(message.strip().partition("\n")[0])[:200]
    if status:
        return f"HTTP {status}, {line}"
    return line
