"""What a call costs, in US dollars; None where no price is known, which is not the same as 0.

Prices come from the map that DSPy ships (LiteLLM's, per model and token class), read offline, or
from the person who runs ragbench: `in=0.15,out=0.60`, per million tokens.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ragbench.errors import LMSetupError

# DSPy would fetch a newer map at the first priced call: a run must not depend on the day.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")


#: Providers whose count of prompt tokens leaves out those read from and written to their cache.
_CACHE_APART = frozenset({"anthropic"})
#: Providers whose count of reply tokens leaves out those of reasoning.
_REASONING_APART = frozenset({"gemini", "xai"})


class Pricing(Protocol):
    """How the calls of one LM are priced."""

    @property
    def known(self) -> bool:
        """Whether calls have a price at all."""

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars for one answered request, or None."""


@dataclass(frozen=True)
class FixedPrice:
    """A price per token of each direction; 0 and 0 for a model that runs here.

    `cached_usd` is that of prompt tokens which the provider had cached, by default `in_usd`.
    """

    in_usd: float = 0.0  # per token
    out_usd: float = 0.0
    cached_usd: float | None = None
    provider: str = ""

    known = True

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars for the reported tokens, or None where none were reported."""
        usage = response.usage
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        apart = self.provider in _CACHE_APART
        prompt = usage.input_tokens + written if apart else usage.input_tokens - cached
        reply = usage.output_tokens
        if self.provider in _REASONING_APART:
            reply += usage.reasoning_tokens or 0
        rate = self.in_usd if self.cached_usd is None else self.cached_usd
        return float(max(prompt, 0) * self.in_usd + cached * rate + reply * self.out_usd)


@dataclass(frozen=True)
class MapPrice:
    """The price of a hosted model in DSPy's map, cached and reasoning tokens included."""

    provider: str  # as the map spells it
    model: str

    @property
    def known(self) -> bool:
        """Whether the map has a price for the model."""
        from ragbench.dspy_internals import model_info, rate

        return rate(model_info(self.provider, self.model), "input_cost_per_token") is not None

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars by the map, or None where a billed kind of token has no known price."""
        from ragbench.dspy_internals import estimate_cost

        usd, _ = estimate_cost(
            response, provider=self.provider, requested_model=self.model, request=request
        )
        return None if usd is None else float(usd)


def list_price(pricing: Pricing, request: Any, response: Any, prompt_tokens: int) -> float | None:
    """US dollars as if the provider had no cache of prompts, or None where no price is known.

    `prompt_tokens` are all of the prompt's, those that were cached included.
    """
    usage = replace(
        response.usage, input_tokens=prompt_tokens, cache_read_tokens=None, cache_write_tokens=None
    )
    return pricing.cost(request, replace(response, usage=usage))


@dataclass(frozen=True)
class UnknownPrice:
    """No price is known: every call costs None."""

    known = False

    def cost(self, request: Any, response: Any) -> float | None:
        """None."""
        return None


def priced(
    pricing: Pricing, request: Any, prompt_tokens: int, completion_tokens: int
) -> float | None:
    """US dollars for a call of so many tokens, or None where no price is known."""
    from dspy.lm15 import Usage

    usage = Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens)
    return pricing.cost(request, reply_of(usage)) if pricing.known else None


def reply_of(usage: Any) -> Any:
    """A reply without text whose tokens are `usage`: what a price is asked of."""
    from dspy.lm15 import Message, Response, TextPart

    message = Message.assistant([TextPart(" ")])
    return Response(id=None, model="none", message=message, finish_reason="stop", usage=usage)


def parse_price(text: str, *, provider: str = "") -> FixedPrice:
    """The price written as `in=0.15,out=0.60`, US dollars per million tokens.

    `cached=0.07` may be added: that of prompt tokens which the provider had cached, else priced as
    the others. `provider` says which kinds of token its counts hold.

    Raises:
        LMSetupError: it is written in another way, or is negative.
    """
    try:
        pairs = [part.split("=") for part in text.split(",")]
        values = {name.strip(): float(value) for name, value in pairs}
        good = {"in", "out"} <= set(values) <= {"in", "out", "cached"} and len(pairs) == len(values)
        good = good and all(math.isfinite(v) and v >= 0 for v in values.values())
    except ValueError:
        good = False
    if not good:
        raise LMSetupError(
            f"price {text!r} is not understood; give US dollars per million tokens, such as "
            "in=0.15,out=0.6 or in=0.15,out=0.6,cached=0.07"
        )
    cached = values["cached"] / 1e6 if "cached" in values else None
    return FixedPrice(values["in"] / 1e6, values["out"] / 1e6, cached, provider)
