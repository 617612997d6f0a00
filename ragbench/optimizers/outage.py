"""Stops a compile whose LM is down, instead of scoring every candidate 0.

Optimizers run with no limit on errors, since one bad question must not cost a night's work. Without
another limit a server that dies would make all later candidates equal and the result worthless.
"""

from __future__ import annotations

import threading

from ragbench.context import current
from ragbench.errors import StopSignal

#: Calls refused in a row after which the LM counts as down.
LIMIT = 20


class LMDownError(StopSignal):
    """The LM is down."""


class Outage:
    """Counts the calls that an LM's server refused in a row, over all threads."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit, self._count, self._lock = limit, 0, threading.Lock()
        self._verdict: str | None = None

    def check(self) -> None:
        """Do nothing unless the LM was found to be down.

        Evaluate leaves its queue running when it is broken off; this empties it without a call.

        Raises:
            LMDownError: it was.
        """
        if self._verdict is not None:
            raise LMDownError(self._verdict)

    def note(self, error: Exception) -> None:
        """Count one refused call.

        Raises:
            LMDownError: too many in a row, or one that no retry can mend (a spent budget).
        """
        with self._lock:
            self._count += 1
            if self._count >= self._limit or getattr(error, "code", None) == "refused":
                self._verdict = f"{type(error).__name__}: {error}"
                raise LMDownError(self._verdict) from error

    def clear(self) -> None:
        """A call got through."""
        self._count = 0


def current_outage() -> Outage | None:
    """The counter of the compile that is running, if any."""
    return current().get(Outage)
