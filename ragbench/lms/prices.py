"""Cost of a call in US dollars. None if the price is unknown, which differs from 0.

Prices come from the installed genai-prices, and from LiteLLM's installed map for models that it
does not know, so a run needs no network. Users can give their own: `in=0.15,out=0.60`, per million
tokens. Service tiers and prices of very long prompts are not distinguished.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from ragbench.errors import LMSetupError
from ragbench.record import Call

# LiteLLM and DSPy would fetch a newer map when they are first asked.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
_MAP = "model_prices_and_context_window_backup.json"
#: Names of providers in the map, where DSPy calls them otherwise.
_IN_MAP = {"openai-chat": "openai", "azure-chat": "azure", "moonshotai": "moonshot",
           "vllm": "hosted_vllm"}  # fmt: skip
_IN, _OUT = "input_cost_per_token", "output_cost_per_token"
_READ, _WRITTEN = "cache_read_input_token_cost", "cache_creation_input_token_cost"
_THOUGHT = "output_cost_per_reasoning_token"
_KINDS = (_IN, _OUT, _READ, _WRITTEN, _THOUGHT)
_IN_GENAI = {_IN: "input_mtok", _OUT: "output_mtok", _READ: "cache_read_mtok",
             _WRITTEN: "cache_write_mtok"}  # fmt: skip


#: Price of a batch call as a fraction of the price of a direct call.
BATCH_DISCOUNT = 0.5


#: Fields of `Call` that count tokens: all of the prompt and of the reply, then special kinds.
TOKENS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens",
          "reasoning_tokens")  # fmt: skip


@dataclass(frozen=True)
class Pricing:
    """US dollars of one token of each kind, by the names of LiteLLM's map. Empty: not known."""

    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Return True if calls have a price."""
        return _IN in self.rates

    def cost(
        self, sent: int, got: int, *, cache_read: int = 0, cache_write: int = 0, thought: int = 0
    ) -> float | None:
        """Return the cost in US dollars, or None if a billed kind of token has no known price.

        Args:
            sent: All tokens of the prompt, including those of special kinds.
            got: All tokens of the reply, including those of special kinds.
            cache_read: Tokens that the provider's cache read.
            cache_write: Tokens that the provider's cache wrote.
            thought: Tokens of reasoning.
        """
        rates = {_READ: self.rates.get(_IN), _WRITTEN: self.rates.get(_IN),
                 _THOUGHT: self.rates.get(_OUT), **self.rates}  # fmt: skip
        counts = {_IN: sent - cache_read - cache_write, _OUT: got - thought, _THOUGHT: thought,
                  _READ: cache_read, _WRITTEN: cache_write}  # fmt: skip
        if _IN not in self.rates:
            return None
        cost = 0.0
        for kind, n in counts.items():
            rate = rates.get(kind)
            if n and rate is None:
                return None
            cost += n * (rate or 0.0)
        return cost

    def times(self, share: float) -> "Pricing":
        """Return the same at this share of the price."""
        return Pricing({name: rate * share for name, rate in self.rates.items()})

    def apply(self, call: Call) -> Call:
        """Return `call` at this price, whatever it was priced at when it was answered."""
        pricing = self.times(BATCH_DISCOUNT) if call.batch else self
        lost = call.failed
        if lost is not None:
            usd = pricing.cost(lost.prompt_tokens, lost.completion_tokens)
            lost = replace(lost, cost_usd=usd)
        if call.error is not None:
            return replace(call, failed=lost)
        tokens = {name: getattr(call, name) for name in TOKENS}
        cost, paid = pricing.of(tokens)
        return replace(call, cost_usd=cost, paid_usd=paid, failed=lost)

    def of(self, tokens: Mapping[str, int]) -> tuple[float | None, float | None]:
        """Return `cost_usd` and `paid_usd` of a call, given its tokens by their names in `Call`."""
        sent, got, read, written, thought = map(tokens.__getitem__, TOKENS)
        cost = paid = self.cost(sent, got, thought=thought)
        if read or written:
            paid = self.cost(sent, got, cache_read=read, cache_write=written, thought=thought)
        return cost, None if paid == cost else paid


@lru_cache(maxsize=256)
def map_entry(provider: str, model: str) -> Mapping[str, float]:
    """Return US dollars per token of each kind for a model of `provider`. Empty if unknown.

    Args:
        provider: Name of the provider in DSPy.
        model: Name of the model.
    """
    name = _IN_MAP.get(provider, provider)
    return _by_genai_prices(name, model) or _by_litellm(name, model)


def _by_genai_prices(provider: str, model: str) -> dict[str, float]:
    from genai_prices.data_snapshot import get_snapshot  # takes 0.1 s

    noon = datetime.now(UTC).replace(hour=12)  # some prices depend on the hour
    try:
        _, info = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return {}
    prices = info.get_prices(noon)
    rates = {}
    for kind, name in _IN_GENAI.items():
        usd = getattr(prices, name, None)
        usd = getattr(usd, "base", usd)  # the base price if there are tiers
        if usd is not None:
            rates[kind] = float(usd) / 1e6
    return rates


def _by_litellm(name: str, model: str) -> dict[str, float]:
    module_spec = find_spec("litellm")
    if module_spec is None or module_spec.origin is None:
        return {}
    path = Path(module_spec.origin).with_name(_MAP)
    if not path.is_file():
        return {}
    price_map = json.loads(path.read_bytes())
    entry = price_map.get(f"{name}/{model}") or price_map.get(model) or {}
    if entry.get("litellm_provider") != name and f"{name}/{model}" not in price_map:
        return {}
    kinds = (kind for kind in _KINDS if type(entry.get(kind)) in (int, float))
    return {kind: float(entry[kind]) for kind in kinds}


def parse_price(text: str) -> Pricing:
    """Return the price written as `in=0.15,out=0.60`, US dollars per million tokens.

    `cached=0.07` may be added: that of prompt tokens which the provider had cached, else priced as
    the others.

    Raises:
        LMSetupError: it is written in another way, or is negative.
    """
    kinds = {"in": _IN, "out": _OUT, "cached": _READ}
    try:
        rates = {}
        for pair in text.split(","):
            name, usd = pair.split("=")
            rates[kinds[name.strip()]] = float(usd) / 1e6
        if {_IN, _OUT} <= set(rates) and all(0 <= usd < math.inf for usd in rates.values()):
            return Pricing(rates)
    except (KeyError, ValueError):
        pass
    raise LMSetupError(
        f"price {text!r} is malformed; give US dollars per million tokens, such as "
        "in=0.15,out=0.6 or in=0.15,out=0.6,cached=0.07"
    )


#: Price of a local model.
NO_PRICE = parse_price("in=0,out=0")
