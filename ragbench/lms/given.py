"""Language models that are handed over as objects: they answer as they are, and are metered.

A config holds texts alone, so an object goes by a name that this process knows (`object:...`). The
object keeps its keys, its headers and its address; limits, ledger and cache are ragbench's.
"""

import hashlib
import json
from typing import Any

import dspy

from ragbench.errors import LMSetupError

PREFIX = "object:"
#: What ragbench's own calls set, of the settings of an LM.
_SAMPLING = ("temperature", "max_tokens", "top_p", "stop", "seed", "presence_penalty")
#: Settings that change no answer, or that must not be written down.
_NOT_NAMED = ("api_key", "extra_headers", "headers", "timeout", "rollout_id", "cache")

_given: dict[str, dspy.BaseLM] = {}


def keep_lm(lm: dspy.BaseLM) -> str:
    """The name of `lm` in configs of this process; the same for an LM of the same settings."""
    shown = {k: v for k, v in lm.kwargs.items() if k not in _NOT_NAMED}
    kind = f"{type(lm).__module__}.{type(lm).__qualname__}"
    text = json.dumps([kind, lm.model, shown], sort_keys=True, default=str)
    name = f"{PREFIX}{lm.model}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    _given[name] = lm
    return name


def given_lm(spec: str) -> dspy.BaseLM:
    """The object that `spec` names.

    Raises:
        LMSetupError: this process was not handed it.
    """
    if spec not in _given:
        raise LMSetupError(
            f"{spec} was handed over as an object and cannot be carried to another process or "
            "read from a file; give a spec such as openai/gpt-4o-mini"
        )
    return _given[spec]


def sampling_of(lm: dspy.BaseLM) -> dict[str, Any]:
    """The settings of `lm` that each request states."""
    given = {**lm.kwargs, "max_tokens": lm.kwargs.get("max_completion_tokens")
             or lm.kwargs.get("max_tokens")}  # fmt: skip
    return {name: given[name] for name in _SAMPLING if given.get(name) is not None}
