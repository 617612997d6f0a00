"""Middleware: what may delay or refuse a call to a server, such as a rate limit.

Each is asked before every attempt at a call, and told afterwards what came of it. One that waits
blocks the thread of its call alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ragbench.lms.calls.scope import Scope

Value = TypeVar("Value")


@dataclass(frozen=True)
class Reply(Generic[Value]):
    """What a server answered: `value` as the caller reads it, and what it took.

    `cost_usd` is None where no price is known; `headers` are those of rate limits, in lower case.
    """

    value: Value
    tokens: int
    cost_usd: float | None
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(eq=False)
class Attempt:
    """One attempt at a call; its reply or its error is filled in before `after_call`."""

    model: str
    number: int  # 1 for the first
    prompt: int  # a hash, which tells prompts apart
    prompt_tokens: int  # estimated
    reply_tokens: int  # at the most
    scope: Scope
    latency_s: float = 0.0
    reply: Reply[Any] | None = None
    error: Exception | None = None  # an `LM15Error` has `retry_after`

    @property
    def tokens(self) -> int:
        """Tokens of prompt and reply, as far as they can be known before."""
        return self.prompt_tokens + self.reply_tokens

    @property
    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The rate-limit headers that came back, names in lower case; empty where none did."""
        if self.reply is not None:
            return self.reply.headers
        headers = getattr(self.error, "rate_limit_headers", None)
        return headers if isinstance(headers, Mapping) else {}


class Middleware(Protocol):
    """Something that watches the calls to a server; used from many threads at once."""

    def before_call(self, attempt: Attempt) -> None:
        """Let the attempt pass, make it wait, or refuse it.

        Raises:
            CallRefusedError: the call must not be made; the question fails with it.
        """

    def after_call(self, attempt: Attempt) -> None:
        """Called once for each attempt that `before_call` let pass, whatever came of it.

        Neither a reply nor an error: another middleware refused the attempt.
        """


class Holding(Middleware, Protocol):
    """Middleware that takes some failures upon itself: they use up none of a call's retries."""

    def holds(self, attempt: Attempt, held: int) -> bool:
        """Whether the failed attempt has only to wait in `before_call` once more.

        `held` says how many attempts of the same call went again for that reason before.
        """
