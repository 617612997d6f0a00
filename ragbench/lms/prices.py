"""What a call costs, in US dollars; None where no price is known, which is not the same as 0.

Prices come from the map that DSPy ships (LiteLLM's, per model and token class), read offline, or
from the person who runs ragbench: `in=0.15,out=0.60`, per million tokens.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Protocol

from ragbench.errors import LMSetupError

# DSPy would fetch a newer map at the first priced call: a run must not depend on the day.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")


class Pricing(Protocol):
    """How the calls of one LM are priced."""

    @property
    def known(self) -> bool:
        """Whether calls have a price at all."""

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars for one answered request, or None."""


@dataclass(frozen=True)
class FixedPrice:
    """A price per token of each direction; 0 and 0 for a model that runs here."""

    in_usd: float = 0.0  # per token
    out_usd: float = 0.0

    known = True

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars for the reported tokens, or None where none were reported."""
        usage = response.usage
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        return float(usage.input_tokens * self.in_usd + usage.output_tokens * self.out_usd)


@dataclass(frozen=True)
class MapPrice:
    """The price of a hosted model in DSPy's map, cached and reasoning tokens included."""

    provider: str  # as the map spells it
    model: str

    @property
    def known(self) -> bool:
        """Whether the map has a price for the model."""
        from dspy.clients.model_metadata import model_info, rate

        return rate(model_info(self.provider, self.model), "input_cost_per_token") is not None

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars by the map, or None where a billed kind of token has no known price."""
        from dspy.clients.costs import estimate_cost

        usd, _ = estimate_cost(
            response, provider=self.provider, requested_model=self.model, request=request
        )
        return None if usd is None else float(usd)


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
    from dspy.lm15 import Message, Response, TextPart, Usage

    usage = Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens)
    message = Message.assistant([TextPart(" ")])
    response = Response(id=None, model="none", message=message, finish_reason="stop", usage=usage)
    return pricing.cost(request, response) if pricing.known else None


def parse_price(text: str) -> FixedPrice:
    """The price written as `in=0.15,out=0.60`, US dollars per million tokens.

    Raises:
        LMSetupError: it is written in another way, or is negative.
    """
    try:
        pairs = [part.split("=") for part in text.split(",")]
        values = {name.strip(): float(value) for name, value in pairs}
        good = set(values) == {"in", "out"} and len(pairs) == 2
        good = good and all(math.isfinite(v) and v >= 0 for v in values.values())
    except ValueError:
        good = False
    if not good:
        raise LMSetupError(
            f"price {text!r} is not understood; give US dollars per million tokens: in=0.15,out=0.6"
        )
    return FixedPrice(values["in"] / 1e6, values["out"] / 1e6)
