"""The rate-limit headers of LM providers: what is left, and when it is whole again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

UNITS = ("requests", "tokens", "input-tokens", "output-tokens")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def quotas(headers: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """What is left of each unit, and in how many seconds it is whole again.

    Reads the headers of OpenAI and those who follow it (`x-ratelimit-remaining-tokens`,
    `-reset-tokens: 1m3.5s`) and of Anthropic (`anthropic-ratelimit-tokens-remaining`, `-reset` as
    a date); what cannot be read is left out.
    """
    by_unit = {}
    for unit in UNITS:
        for left, reset in (
            (f"x-ratelimit-remaining-{unit}", f"x-ratelimit-reset-{unit}"),
            (f"anthropic-ratelimit-{unit}-remaining", f"anthropic-ratelimit-{unit}-reset"),
        ):
            try:
                by_unit[unit] = (float(headers[left][0]), _seconds(headers[reset][0]))
            except (KeyError, IndexError, ValueError):
                continue
    return by_unit


def _seconds(text: str) -> float:
    """Seconds of `1h2m3.5s`, `20ms`, `59.7` or from now until a date; raises ValueError."""
    if "T" in text:
        when = datetime.fromisoformat(text)
        return max(0.0, (when - datetime.now(when.tzinfo)).total_seconds())
    if re.fullmatch(r"[\d.]+", text):
        return float(text)
    pieces = re.findall(r"([\d.]+)(ms|[dhms])", text)
    if "".join(number + unit for number, unit in pieces) != text.strip() or not pieces:
        raise ValueError(text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in pieces)
