"""Where the LM layer leaves its traces: the question's ledger and its counter of events."""

from __future__ import annotations

import threading
from typing import Any

import dspy

from ragbench.context import current
from ragbench.ledger import file_call
from ragbench.logs import fields, get
from ragbench.record import Call

_lock = threading.Lock()
_log = get(__name__)


def count(event: str) -> None:
    """Count one event of the question, such as `label_repair`; outside of one, do nothing."""
    counts = current().counts
    if counts is not None:
        with _lock:
            counts[event] += 1
    _log.info("counted", extra=fields(what=event))


def file(model: str, waited_s: float = 0.0, **fields: Any) -> None:
    """File a `Call` under the signature, role and fallback mark of the calling context.

    `waited_s` is what a cached call has waited for the one that filled the cache.
    """
    context = current()
    signature, role = context.caller or ("", "")
    signature = signature or _caller_signature()
    call = Call(model=model, signature=signature, role=role, fallback=context.fallback, **fields)
    file_call(call, waited_s)


def _caller_signature() -> str:
    # A module that was not made by `predict` or `chain_of_thought`, such as one of DSPy's own.
    for module in reversed(dspy.settings.get("caller_modules") or []):
        name = getattr(getattr(module, "signature", None), "__name__", "")
        if name:
            return str(name)
    return ""
