"""What a call costs, in US dollars; None where no price is known, which is not the same as 0.

Prices come from LiteLLM's map (per model and kind of token), as it is installed, so that a run does
not depend on the day; or from the person who runs ragbench: `in=0.15,out=0.60`, per million tokens.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ragbench.calls import Call
from ragbench.errors import LMSetupError

# LiteLLM and DSPy would fetch a newer map when they are first asked.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
_MAP = "model_prices_and_context_window_backup.json"
#: Names of providers in the map, where DSPy calls them otherwise.
_IN_MAP = {"openai-chat": "openai", "azure-chat": "azure", "moonshotai": "moonshot",
           "vllm": "hosted_vllm"}  # fmt: skip

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

    def fill(self, call: Call) -> Call:
        """`call` at this price if it was answered while none was known."""
        if call.cost_usd is not None or call.error:
            return call
        sent, read, lost = call.prompt_tokens, call.cache_read_tokens, call.failed
        cost = sent * self.in_usd + call.completion_tokens * self.out_usd
        cached = self.in_usd if self.cached_usd is None else self.cached_usd
        paid = cost - read * (self.in_usd - cached)
        if lost is not None and lost.cost_usd is None:
            usd = lost.prompt_tokens * self.in_usd + lost.completion_tokens * self.out_usd
            lost = replace(lost, cost_usd=usd)
        return replace(call, cost_usd=cost, paid_usd=paid if paid != cost else None, failed=lost)


@lru_cache(maxsize=256)
def map_entry(provider: str, model: str) -> Mapping[str, Any]:
    """What LiteLLM's map says of a model of `provider`; empty where it has none."""
    found = find_spec("litellm")
    path = Path(found.origin).with_name(_MAP) if found and found.origin else None
    if path is None or not path.is_file():
        return {}
    known = json.loads(path.read_bytes())
    name = _IN_MAP.get(provider, provider)
    bare: dict[str, Any] = known.get(model) or {}
    of_provider = known.get(f"{name}/{model}")
    return of_provider or (bare if bare.get("litellm_provider") == name else {})


def map_rate(entry: Mapping[str, Any], name: str) -> float | None:
    """US dollars of one token of that kind, by an entry of the map."""
    value = entry.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good and value >= 0 else None  # type: ignore[arg-type, operator]


@dataclass(frozen=True)
class MapPrice:
    """The price of a hosted model in LiteLLM's map, cached and reasoning tokens included."""

    provider: str  # as DSPy's router calls it
    model: str

    @property
    def known(self) -> bool:
        """Whether the map has a price for the model."""
        return map_rate(map_entry(self.provider, self.model), "input_cost_per_token") is not None

    def cost(self, request: Any, response: Any) -> float | None:
        """US dollars by the map, or None where a billed kind of token has no known price."""
        entry, usage = map_entry(self.provider, self.model), response.usage
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        thought = usage.reasoning_tokens or 0
        apart = self.provider in _CACHE_APART
        prompt = usage.input_tokens if apart else usage.input_tokens - cached - written
        thought_apart = self.provider in _REASONING_APART
        reply = usage.output_tokens if thought_apart else usage.output_tokens - thought
        tier = (response.provider_data or {}).get("service_tier")
        ending = _of_long_context(entry, prompt + cached + written)
        ending += f"_{tier}" if tier in ("priority", "flex") else ""
        if min(prompt, reply) < 0 or tier not in _TIERS:
            return None
        usd = 0.0
        for tokens, kind, other in (
            (prompt, "input_cost_per_token", ""),
            (reply, "output_cost_per_token", ""),
            (thought, "output_cost_per_reasoning_token", "output_cost_per_token"),
            (cached, "cache_read_input_token_cost", "input_cost_per_token"),
            (written, "cache_creation_input_token_cost", "input_cost_per_token"),
        ):
            rate = map_rate(entry, kind + ending)
            rate = map_rate(entry, other + ending) if rate is None and other else rate
            if tokens and rate is None:
                return None
            usd += tokens * (rate or 0.0)
        return usd


#: Tiers of a service that a reply may name; of any other the price is not known.
_TIERS = (None, "default", "standard", "auto", "on_demand", "ON_DEMAND", "priority", "flex")


def _of_long_context(entry: Mapping[str, Any], prompt_tokens: int) -> str:
    """The ending of the names of prices that a prompt of so many tokens has."""
    found = (re.search(r"_above_(\d+)k_tokens$", name) for name in entry)
    passed = [int(m[1]) for m in found if m and prompt_tokens > 1000 * int(m[1])]
    return f"_above_{max(passed)}k_tokens" if passed else ""


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
