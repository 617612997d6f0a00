"""What holds for the running work: the surroundings of its question, and whether it was stopped.

The surroundings are one typed, immutable value. `current()` returns it. `use` sets it for a block:

    with use(replace(current(), counts=counts), lm=lm):
        ...  # and in every thread that the block starts by `ledger.fan_out` or by DSPy

It travels in one DSPy setting (`KEY`), because DSPy passes its settings to the threads of Evaluate
and Parallel; they lose a `ContextVar`. Values that several packages read are fields. A value of one
package, such as the ledger, is a part, found by its class, so this module does not import it.

Ctrl-C calls `stop_all`: no new call begins, and running calls end soon. Code checks `stopped`
before each call. Waiting code checks it every `POLL_S`, by `sleep_until` or in its own loop.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

#: The setting of DSPy that holds the context.
KEY = "ragbench"
#: Seconds that running calls have to finish, because they are paid.
GRACE_S = 1.0
#: The longest that anything waits without asking whether it still may.
POLL_S = 0.25

_stopped_at: float | None = None

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Deadline of a question after `seconds`, in seconds of `time.monotonic`."""

    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of a call; change a copy with `dataclasses.replace`."""

    #: Id of the question that is being answered.
    qid: str | None = None
    #: Signature and role under which calls are filed.
    caller: tuple[str, str] | None = None
    #: Events of the question, such as `label_repair`.
    counts: Counter[str] | None = None
    #: Time at which the question's time limit passes.
    deadline: Deadline | None = None
    #: LMs of single roles (`dspy.LM`), where they differ from the current one.
    role_lms: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[type, object] = field(default_factory=dict)

    def get(self, kind: type[Part]) -> Part | None:
        """Return the part of class `kind`, or None."""
        value = self.parts.get(kind)
        if isinstance(value, kind):
            return value
        return None

    def plus(self, *values: object) -> Context:
        """Return a copy with `values` as parts; each replaces the part of its class."""
        return replace(self, parts={**self.parts, **{type(value): value for value in values}})


_EMPTY = Context()


def current() -> Context:
    """Return the context of the calling thread, or an empty one."""
    settings = getattr(sys.modules.get("dspy"), "settings", None)
    # Without DSPy, or while it is being imported, nothing can have been set.
    context = None if settings is None else settings.get(KEY)
    if isinstance(context, Context):
        return context
    return _EMPTY


def use(context: Context, **settings: Any) -> AbstractContextManager[None]:
    """Make `context` the current one inside the block.

    Args:
        context: Context of the block.
        **settings: Settings of DSPy inside the block.
    """
    import dspy

    block: AbstractContextManager[None] = dspy.context(**settings, **{KEY: context})
    return block


def stopped() -> bool:
    """Return True if the process was stopped: nothing may begin."""
    return _stopped_at is not None


def cut_off() -> bool:
    """Return True if the grace period after the stop is over and running calls are aborted."""
    return _stopped_at is not None and time.monotonic() > _stopped_at + GRACE_S


def stop_all() -> None:
    """Stop the process; safe in a signal handler, since it takes no lock."""
    global _stopped_at
    _stopped_at = time.monotonic()


def allow_calls() -> None:
    """Let calls be made again, as for another command of the same process."""
    global _stopped_at
    _stopped_at = None


def sleep_until(seconds: float, over: Callable[[], bool]) -> None:
    """Wait until the time has passed, the process is stopped or a condition holds.

    Args:
        seconds: Time to wait, in seconds.
        over: Function that ends the wait if it returns True.
    """
    end = time.monotonic() + seconds
    while not (stopped() or over()) and (seconds_left := end - time.monotonic()) > 0:
        time.sleep(min(seconds_left, POLL_S))
