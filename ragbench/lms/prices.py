"""What a call costs, in US dollars; None where no price is known, which is not the same as 0.

Prices come from LiteLLM's map (per model and kind of token), as it is installed, so that a run does
not depend on the day; or from the person who runs ragbench: `in=0.15,out=0.60`, per million tokens.
Tiers of service and prices of very long prompts are not told apart.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragbench.calls import Call
from ragbench.errors import LMSetupError

# LiteLLM and DSPy would fetch a newer map when they are first asked.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
_MAP = "model_prices_and_context_window_backup.json"
#: Names of providers in the map, where DSPy calls them otherwise.
_IN_MAP = {"openai-chat": "openai", "azure-chat": "azure", "moonshotai": "moonshot",
           "vllm": "hosted_vllm"}  # fmt: skip
_IN, _OUT = "input_cost_per_token", "output_cost_per_token"
_READ, _WRITTEN = "cache_read_input_token_cost", "cache_creation_input_token_cost"
_THOUGHT = "output_cost_per_reasoning_token"


@dataclass(frozen=True)
class Pricing:
    """US dollars of one token of each kind, by the names of LiteLLM's map; empty: not known."""

    rates: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether calls have a price at all."""
        return map_rate(self.rates, _IN) is not None

    def cost(
        self, sent: int, got: int, *, cache_read: int = 0, cache_write: int = 0, thought: int = 0
    ) -> float | None:
        """US dollars, or None where a billed kind of token has no known price.

        `sent` and `got` are all tokens of the prompt and of the reply, those of special kinds
        among them.
        """
        usd = 0.0 if self.known else None
        for tokens, kind, otherwise in (
            (sent - cache_read - cache_write, _IN, _IN),
            (got - thought, _OUT, _OUT),
            (thought, _THOUGHT, _OUT),
            (cache_read, _READ, _IN),
            (cache_write, _WRITTEN, _IN),
        ):
            rate = map_rate(self.rates, kind)
            rate = map_rate(self.rates, otherwise) if rate is None else rate
            if usd is None or (tokens and rate is None):
                return None
            usd += tokens * (rate or 0.0)
        return usd

    def times(self, share: float) -> Pricing:
        """The same at this share of the price."""
        rates = {name: map_rate(self.rates, name) for name in self.rates}
        return Pricing({name: rate * share for name, rate in rates.items() if rate is not None})

    def fill(self, call: Call) -> Call:
        """`call` at this price if it was answered while none was known."""
        if call.cost_usd is not None or call.error:
            return call
        sent, got, lost = call.prompt_tokens, call.completion_tokens, call.failed
        cost = self.cost(sent, got)
        paid = self.cost(sent, got, cache_read=call.cache_read_tokens)
        if lost is not None and lost.cost_usd is None:
            usd = self.cost(lost.prompt_tokens, lost.completion_tokens)
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


def parse_price(text: str) -> Pricing:
    """The price written as `in=0.15,out=0.60`, US dollars per million tokens.

    `cached=0.07` may be added: that of prompt tokens which the provider had cached, else priced as
    the others.

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
    names = {"in": _IN, "out": _OUT, "cached": _READ}
    return Pricing({names[name]: usd / 1e6 for name, usd in values.items()})


#: Of a model that runs here.
NO_PRICE = parse_price("in=0,out=0")
