"""One attempt at a call to a server, as what lets it pass and what learns from it see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ragbench.lms.calls.limits import Scope

Value = TypeVar("Value")


@dataclass(frozen=True)
class Reply(Generic[Value]):
    """What a server answered: `value` as the caller reads it, and what it took.

    `cost_usd` is None where no price is known; `headers` are those of the reply, in lower case.
    """

    value: Value
    tokens: int
    cost_usd: float | None
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(eq=False)
class Attempt:
    """One attempt at a call; its reply or its error is filled in when it has ended."""

    prompt: int  # a hash, which tells prompts apart
    prompt_tokens: int  # estimated
    reply_tokens: int  # at the most
    scope: Scope
    reply: Reply[Any] | None = None
    error: Exception | None = None  # an `LM15Error` has `retry_after`

    @property
    def tokens(self) -> int:
        """Tokens of prompt and reply, as far as they can be known before."""
        return self.prompt_tokens + self.reply_tokens

    @property
    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """The headers that came back, names in lower case; empty where none did."""
        if self.reply is not None:
            return self.reply.headers
        headers = getattr(self.error, "rate_limit_headers", None)
        return headers if isinstance(headers, Mapping) else {}
