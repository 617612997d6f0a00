"""Replies of a model: blank and repeated ones, and the reasons for which they end a program."""

from collections.abc import Mapping
from typing import Any, Literal, get_origin

import dspy

#: Reasons for the end of a program. `no_answer`: it states that the facts are missing.
StopReason = Literal[
    "answered", "direct", "no_answer", "budget", "max_steps", "no_progress", "parse_fallback"
]

#: Answer if a model leaves the field empty because the facts are missing.
NOT_STATED = "not stated"
#: Temperature of a call that is repeated because the reply added nothing.
RESAMPLING = 0.7


def sampling(sample: int, temperature: float = RESAMPLING) -> dict[str, Any]:
    """Return the settings of a repeated call.

    Args:
        sample: Number of the sample. 0 is the first call, without settings. Each sample has a
            separate seed and cache entry.
        temperature: Temperature of the repeated calls.
    """
    if sample:
        return {"temperature": temperature, "rollout_id": sample}
    return {}


def stalled(reply: dspy.Prediction) -> StopReason:
    """Return the stop reason of a loop that ends because `reply` adds nothing."""
    if reply.get("parse_fallback"):
        return "parse_fallback"
    return "no_progress"


def blank(signature: type[dspy.Signature]) -> dict[str, Any]:
    """Return an empty value for each output field: no text, no items, False or 0."""
    values: dict[str, Any] = {}
    for name, declared in signature.output_fields.items():
        kind = get_origin(declared.annotation) or declared.annotation
        values[name] = kind() if kind in (bool, int, float, list) else ""
    return values


def tidied(reply: dspy.Prediction, blanks: Mapping[str, Any]) -> dspy.Prediction:
    """Return a reply with stripped texts, and blanks for missing fields.

    Args:
        reply: Reply to change in place.
        blanks: Blank value of each field.
    """
    for name, nothing in blanks.items():
        value = reply.get(name)
        if value is None:
            reply[name] = nothing
        elif isinstance(value, str):
            reply[name] = value.strip()
    return reply
