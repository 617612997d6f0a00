"""The time that one question may take: when it is over, its next call is refused.

A call under way is not broken off, and an answer from the cache is not refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

import dspy

from ragbench.lms.governor import CallRefusedError

#: Settings of DSPy, which its threads and `ledger.fan_out` hand on: the seconds that a question may
#: take, and the `Deadline` of the one that is being answered.
QUESTION_TIME_KEY, DEADLINE_KEY = "rb_question_time", "rb_deadline"


class QuestionTimeoutError(CallRefusedError):
    """The question's time is over; nothing was sent."""


@dataclass(frozen=True)
class Deadline:
    """When a question's time of `seconds` is over, in seconds of `time.monotonic`."""

    seconds: float
    at: float


@contextmanager
def question_time() -> Iterator[None]:
    """Give the question that is answered inside the block the time that is set, if any is."""
    seconds = dspy.settings.get(QUESTION_TIME_KEY)
    deadline = None if seconds is None else Deadline(seconds, monotonic() + seconds)
    with dspy.context(**{DEADLINE_KEY: deadline}):
        yield


def check_deadline() -> None:
    """Do nothing unless the question's time is over.

    Raises:
        QuestionTimeoutError: it is.
    """
    deadline = dspy.settings.get(DEADLINE_KEY)
    if isinstance(deadline, Deadline) and monotonic() > deadline.at:
        raise QuestionTimeoutError(f"the question took longer than {deadline.seconds:g} s")
