"""All attempts at one call: governed, held to the limits of spending, tried again.

Calls to LMs and to servers of embeddings and rerankings go through here alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dspy import lm15
from dspy.lm15 import LM15Error, Request

from ragbench.lms.deadline import check_deadline
from ragbench.lms.governor import Attempt, CallRefusedError, Governor, Holder
from ragbench.lms.limits import Amount, Slip, reserved
from ragbench.logs import fields as fields_of
from ragbench.logs import get

_log = get(__name__)
#: What may be otherwise at the next attempt.
TRANSIENT = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)


@dataclass(frozen=True)
class Retries:
    """How often and after how long a failed attempt is made again.

    Rate limits, overload and lost connections are tried again `limit` times, a time-out once: each
    costs a whole time limit. The wait doubles from `base_s` with seeded jitter; a server's
    Retry-After is kept to, but a wait of more than `longest_s` is given up.
    """

    limit: int = 4
    timeouts: int = 1
    base_s: float = 1.0
    longest_s: float = 120.0
    seed: int = 0
    _random: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_random", random.Random(self.seed))

    def wait_s(self, error: Exception, number: int) -> float | None:
        """Seconds to wait after attempt `number` failed with `error`; None to give up."""
        limit = self.timeouts if isinstance(error, lm15.TimeoutError) else self.limit
        if number > limit or not (isinstance(error, LM15Error) and isinstance(error, TRANSIENT)):
            return None
        jitter = self._random.random()
        if error.retry_after is not None:
            wait = max(error.retry_after, 0.0) + 0.25 * jitter
        else:
            wait = self.base_s * 2.0 ** (number - 1) * (0.5 + 0.5 * jitter)
        return wait if wait <= self.longest_s else None


@dataclass
class Tries:
    """One call to `model`, made as often as it takes; `last` is the last attempt that was sent."""

    model: str
    request: Request
    retries: Retries
    holders: Sequence[Holder]
    sleep: Callable[[float], None]
    last: Attempt | None = None

    def until_done(self, once: Callable[[Attempt], None]) -> Attempt:
        """The last attempt, with a response, or with the error of one that failed for good.

        `once` makes one attempt, and fills in what came of it.

        Raises:
            CallRefusedError: the call was refused, perhaps after attempts that failed.
        """
        number = held = 0
        while True:
            number += 1
            tried = Attempt(self.model, self.request, number)
            try:
                once(tried)
            except CallRefusedError as error:
                _log.info("call refused", extra=fields_of(model=self.model, why=str(error)))
                raise
            self.last = tried
            if tried.response is not None:
                return tried
            assert tried.error is not None
            if any(holder.goes_again(tried, held) for holder in self.holders):
                held += 1
                continue
            wait = self.retries.wait_s(tried.error, number - held)
            if wait is None:
                return tried
            _log.info("waiting to try again", extra=said_of(tried, seconds=round(wait, 3)))
            self.sleep(wait)


def governed(
    tried: Attempt,
    send: Callable[[Attempt, Slip], None],
    *,
    governors: Sequence[Governor],
    most: Amount,
) -> None:
    """Send the attempt, which may take `most`, when the governors let it pass; tell them after.

    Raises:
        CallRefusedError: a governor, a limit of spending or the question's time refused it.
    """
    passed: list[Governor] = []
    try:
        for governor in governors:
            governor.before_call(tried)
            passed.append(governor)
        check_deadline()
        with reserved(most) as slip:
            send(tried, slip)
    finally:
        for governor in passed:
            governor.after_call(tried)


def said_of(tried: Attempt, **more: Any) -> dict[str, Any]:
    """The fields of a log line on an attempt that failed."""
    error = f"{type(tried.error).__name__}: {tried.error}"
    return fields_of(model=tried.model, attempt=tried.number, error=error[:500], **more)
