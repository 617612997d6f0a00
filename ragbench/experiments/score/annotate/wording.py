"""Words that the summaries of all annotations share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def spending(summary: Mapping[str, Any]) -> str:
    """What is missing of an annotation, and what its calls took and cost."""
    because = "; ".join(f"{why} ({n})" for why, n in summary["unscored_because"].items())
    as_if, billed = summary["as_if"], summary["billed"]
    tokens = as_if["prompt_tokens"] + as_if["completion_tokens"]
    missing = [
        f"{summary['unscored']} unscored" + (f" ({because})" if because else ""),
        f"{summary['not_asked']} not asked",
        f"{summary['cut']} cut",
    ]
    took = (
        f"took {as_if['calls']} calls, {tokens:,} tokens, {money(as_if['cost_usd'])} $, "
        f"billed {money(billed['cost_usd'])} $"
    )
    return f"{', '.join(missing)}; {took}"


def money(usd: float | None) -> str:
    """A sum in dollars; "unknown" where a price is."""
    return "unknown" if usd is None else f"{usd:.4f}"


def number(value: float | None) -> str:
    """A score as tables show it; "-" where there is none."""
    return "-" if value is None else f"{value:.3f}"
