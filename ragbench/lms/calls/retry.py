"""How often and after how long a failed attempt at a call is made again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from dspy import lm15
from dspy.lm15 import LM15Error

#: What may be otherwise at the next attempt.
TRANSIENT = (lm15.RateLimitError, lm15.TimeoutError, lm15.ServerError, lm15.TransportError)


@dataclass(frozen=True)
class Retries:
    """How often and after how long a failed attempt is made again.

    Rate limits, overload and lost connections are tried again `limit` times, a time-out once: each
    costs a whole time limit. The wait doubles from `base_s` with seeded jitter; it is no shorter
    than a server's Retry-After, and one of more than `longest_s` is given up.
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
        wait = self.base_s * 2.0 ** (number - 1) * (0.5 + 0.5 * jitter)
        if error.retry_after is not None:
            wait = max(wait, error.retry_after + 0.25 * jitter)
        return wait if wait <= self.longest_s else None
