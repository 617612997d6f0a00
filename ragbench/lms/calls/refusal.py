"""Calls that are refused before anything is sent."""

from __future__ import annotations

from typing import NoReturn

from dspy import LMError

from ragbench.ledger import current_ledger


class CallRefusedError(LMError):
    """The call was refused; nothing was sent."""

    default_code = "refused"


class LimitReachedError(CallRefusedError):
    """A limit of the command, an LM that is down or a stop refused the call."""


class QuestionTimeoutError(CallRefusedError):
    """The question's time is over."""


def refuse(why: str) -> NoReturn:
    """Refuse a call, so that its question counts as cut off and not as failed.

    Raises:
        LimitReachedError: always.
    """
    ledger = current_ledger()
    if ledger is not None:
        ledger.refused = True
    raise LimitReachedError(why)
