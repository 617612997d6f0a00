"""Governors: what may delay or refuse a call to a model, such as a budget or a rate limit.

The metered engine asks every governor before each attempt and tells it afterwards what came of it.
A governor that waits blocks the thread of its call alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dspy import LMError
from dspy.lm15 import Request, Response

#: Where a wire leaves the rate-limit headers of a reply, in the response's `provider_data`.
RATE_LIMITS = "ragbench_rate_limits"


class CallRefusedError(LMError):
    """A governor refused the call; nothing was sent. Raised by `Governor.before_call`."""

    default_code = "refused"


@dataclass
class Attempt:
    """One attempt at a call; the outcome is filled in before `after_call`."""

    model: str
    request: Request
    number: int  # 1 for the first
    latency_s: float = 0.0
    cost_usd: float | None = None
    response: Response | None = None
    error: Exception | None = None  # an `LM15Error` has `retry_after`

    @property
    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The rate-limit headers that came back, names in lower case; empty where none did."""
        if self.response is not None:
            found = (self.response.provider_data or {}).get(RATE_LIMITS)
        else:
            found = getattr(self.error, "rate_limit_headers", None)
        return found if isinstance(found, Mapping) else {}


class Governor(Protocol):
    """Something that watches the calls of an LM; used from many threads at once."""

    def before_call(self, attempt: Attempt) -> None:
        """Let the attempt pass, make it wait, or refuse it.

        Raises:
            CallRefusedError: the call must not be made; the question fails with it.
        """

    def after_call(self, attempt: Attempt) -> None:
        """Called once for each attempt that `before_call` let pass, whatever came of it.

        Neither a response nor an error: another governor refused the attempt.
        """


class Holder(Governor, Protocol):
    """A governor that takes some failures upon itself: they use up none of a call's retries."""

    def goes_again(self, attempt: Attempt, held: int) -> bool:
        """Whether the failed attempt has only to wait in `before_call` once more.

        `held` says how many attempts of the same call went again for that reason before.
        """
