"""A circuit breaker: when everything an LM is asked fails, calls wait instead of failing.

While it is open every call waits; after growing pauses one of them is let through to probe the
server. It is broken when that took too long, or cannot heal: calls are refused and the command
comes to its end. One breaker per LM.
"""

import math
import threading
import time
from collections.abc import Callable

from dspy import lm15

from ragbench import logs
from ragbench.errors import LMSetupError, LMUnavailableError, RagbenchError
from ragbench.lms.calls.limits import Attempt, refuse, stop, stopped_by
from ragbench.redact import redact

#: Attempts that fail in a row, and different prompts among them, after which the server is down.
IN_A_ROW = 10
PROMPTS = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
PATIENCE_S = 600.0

_REFUSED = (lm15.AuthError, lm15.BillingError, lm15.RateLimitError)
_DOWN = (lm15.ServerError, lm15.TransportError, lm15.TimeoutError)
_log = logs.get(__name__)


class Breaker:
    """Opens when all calls fail; `patience` is how many seconds it stays open.

    `key_variable` is where the key comes from, for the message to a person whose key is refused.
    """

    def __init__(
        self,
        model: str,
        *,
        patience: float = PATIENCE_S,
        key_variable: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model, self.patience, self._key = model, patience, key_variable
        #: Why calls are refused from now on; None while they are not.
        self.broken: RagbenchError | None = None
        self._clock = clock
        self._changed = threading.Condition()
        self._failed = 0
        self._prompts: set[int] = set()
        self._opened_at: float | None = None
        self._rejected_since: float | None = None
        self._probe: Attempt | None = None
        self._pause = self._probe_at = 0.0

    @property
    def open(self) -> bool:
        """Whether calls wait."""
        return self._opened_at is not None

    def enter(self, attempt: Attempt) -> None:
        """Let the attempt pass, or make it wait until the server answers again.

        Raises:
            LimitReachedError: it will not.
        """
        with self._changed:
            while self.open and self.broken is None:
                wait = math.inf if self._probe else self._probe_at - self._clock()
                if wait <= 0:
                    self._probe = attempt
                    return
                attempt.scope.wait(self._changed, wait)
        if self.broken is not None:
            refuse(str(self.broken))

    def leave(self, attempt: Attempt) -> None:
        """Count a failure of the server; anything else shows that it is there."""
        error = attempt.error
        with self._changed:
            probed = attempt is self._probe
            # A call that was broken off, by its question's time or a stop, says nothing of it.
            silent = attempt.reply is None and (error is None or attempt.scope.over())
            if self.broken is None and not silent:
                self._learn(error, attempt, probed=probed)
            if probed:
                self._probe = None
            if probed or self.broken:
                self._changed.notify_all()

    def holds(self, error: BaseException) -> bool:
        """Whether a call that failed so has only to wait until the server is there again.

        Where it will not be and a command ends for it, the call is refused then, so that its
        question was cut off and did not fail.
        """
        if self.broken is not None and stopped_by():
            return _shows_outage(error) or isinstance(error, _REFUSED)
        return self.open and _shows_outage(error)

    def _learn(self, error: Exception | None, attempt: Attempt, *, probed: bool) -> None:
        now = self._clock()
        if ends := self._lasting(error, now):
            self._break(ends, attempt)
        elif not _shows_outage(error):
            self._failed = 0
            self._prompts.clear()
            if self._opened_at is not None:
                down, self._opened_at = now - self._opened_at, None
                _log.warning("%s answers again after %.0f s", self.model, down)
        elif probed or not self.open:
            self._failed += 1
            self._prompts.add(attempt.prompt)
            if self._failed < IN_A_ROW or len(self._prompts) < PROMPTS:
                return
            opens = self._opened_at is None
            down_for = now - (self._opened_at or now)
            self._pause = FIRST_PAUSE_S if opens else min(2 * self._pause, LONGEST_PAUSE_S)
            self._probe_at = now + self._pause
            if _forbidden(error) or down_for + self._pause > self.patience:
                self._break(self._outage(error, down_for), attempt)
            elif opens:
                self._opened_at = now
                _log.warning(
                    "%s is down, so calls wait and one of them tries again after growing pauses, "
                    "for %.0f s at the most: %s", self.model, self.patience, reason(error),
                )  # fmt: skip

    def _lasting(self, error: Exception | None, now: float) -> RagbenchError | None:
        """What one reply is enough to know, or that nothing but rejections came for too long."""
        again = "the same command continues"
        rejected = isinstance(error, lm15.RateLimitError)
        since = self._rejected_since if self._rejected_since is not None else now
        self._rejected_since = since if rejected else None
        if isinstance(error, lm15.AuthError) and not _forbidden(error):
            where = f" in {self._key}" if self._key else ""
            return LMSetupError(
                f"{self.model} refuses the key: {reason(error)}; give one that it takes{where}"
            )
        if isinstance(error, lm15.BillingError):
            why = f"demands payment: {reason(error)}; {again} afterwards"
        elif rejected and (away := getattr(error, "retry_after", None) or 0) > self.patience:
            minutes = math.ceil(away / 60)
            why = f"takes no more calls for {minutes} minutes: {reason(error)}; {again} then"
        elif rejected and now - since > self.patience:
            why = f"has rejected every call for {self.patience:.0f} s: {reason(error)}; "
            why += f"{again} when it takes calls again"
        else:
            return None
        return LMUnavailableError(f"{self.model} {why}")

    def _outage(self, error: Exception | None, down_s: float) -> RagbenchError:
        if _forbidden(error):
            return LMSetupError(
                f"{self.model} refuses every call: {reason(error)}; give another key or model"
            )
        return LMUnavailableError(
            f"{self.model} has been down for {down_s:.0f} s: {reason(error)}; "
            "the same command continues when it is back"
        )

    def _break(self, error: RagbenchError, attempt: Attempt) -> None:
        self.broken = error
        stop(error, by=self.model, spent=attempt.scope.spent)


def _shows_outage(error: BaseException | None) -> bool:
    return isinstance(error, _DOWN) or _forbidden(error)


def _forbidden(error: BaseException | None) -> bool:
    # Of single prompts, too: some gateways answer a filtered one with 403.
    status = getattr(error, "status", None) or 0
    refused = isinstance(error, lm15.AuthError) and status == 403
    return refused or 300 <= status < 400 or isinstance(error, lm15.UnsupportedModelError)


def reason(error: Exception | None) -> str:
    """The first line of what the server said, with its status."""
    message = getattr(error, "message", "") or str(error)
    status = getattr(error, "status", None)
    first = redact(message.strip().partition("\n")[0])[:200]
    return f"HTTP {status}, {first}" if status else first
