"""One call of a predictor: its LM, its share of the budget, and what is done when it fails.

Two failures have a way out. A prompt that the LM refuses as too long is cut and sent again. Of a
reply that cannot be read in full, the fields that could be are kept, and the others take the
default that the program declares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import dspy
from dspy import AdapterParseError, ContextWindowExceededError

from ragbench.context import current, use
from ragbench.lms.adapters import PartialReplyError
from ragbench.programs.core.budget import Budget
from ragbench.programs.core.prompts import shortened

#: Of a call that asks again because a reply only repeated what was there.
RESAMPLING_TEMPERATURE = 0.7


def role_lm(role: str) -> Any:
    """The LM that answers the calls of `role`: its own, or the current one."""
    return current().role_lms.get(role) or dspy.settings.lm


def ask(
    predictor: dspy.Module,
    inputs: Mapping[str, Any],
    *,
    otherwise: Mapping[str, Any] | None,
    last: bool,
    budget: Budget,
    count: Callable[[str], None],
) -> tuple[dspy.Prediction, Mapping[str, Any]]:
    """The reply of `predictor`, and the inputs that it is the reply to, cut where need be.

    `otherwise` fills the fields that could not be read, and is None where there is no such way out.
    A reply of which nothing could be read has `parse_fallback=True`, one of which a part could
    has `partial_reply=True`.

    Raises:
        BudgetSpentError: no call is left.
        dspy.LMError: the provider failed; a window too small for the prompt is one for a `last`
            call, and where `otherwise` is None.
    """
    role = getattr(predictor, "rb_role", "")
    lm = role_lm(role)
    caller = (getattr(predictor, "rb_signature", ""), role)
    with use(replace(current(), caller=caller), lm=lm):
        for attempt in itertools.count():
            budget.spend_call(last=last)
            try:
                return predictor(**inputs), inputs
            except AdapterParseError as error:
                read = error.read if isinstance(error, PartialReplyError) else {}
                if read:
                    count("partial_reply")
                    mended = {**(otherwise or {}), **read, "partial_reply": True}
                    return dspy.Prediction(**mended), inputs
                count("parse_fallback")
                break
            except ContextWindowExceededError as error:
                budget.give_call_back()
                refusal = "" if attempt else str(error)  # words that did not help: halve
                room = int(lm.kwargs.get("max_tokens") or 0)
                cut = shortened(inputs, refusal=refusal, reply_tokens=room)
                if cut is None and (last or otherwise is None):
                    raise
                if cut is None:
                    count("context_overflow")
                    break
                count("context_cut")
                inputs = cut
    return dspy.Prediction(**(otherwise or {}), parse_fallback=True), inputs
