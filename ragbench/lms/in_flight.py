"""Requests that are the same and under way at once are sent once; the others wait for its reply.

DSPy's cache answers a request that was answered before, not one that is on its way. Here the second
waits until the first has ended and then asks the cache; where the first failed, it is sent itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import perf_counter

from ragbench import stopping
from ragbench.context import current
from ragbench.lms.calls import Elsewhere, Scope


@dataclass(frozen=True)
class Waited:
    """Seconds that a request has waited for the same one to end."""

    seconds: float


@dataclass(eq=False)
class _Flight:
    over: bool = False


class InFlight:
    """The requests under way that a cache will hold; thread-safe."""

    def __init__(self) -> None:
        self._changed = stopping.wakes(threading.Condition())
        self._flights: dict[object, _Flight] = {}

    @contextmanager
    def turn(self, key: object) -> Iterator[Waited]:
        """Send the request `key` inside the block, after the same one if that is under way.

        Raises:
            CallRefusedError: it may not be sent any more.
        """
        start, mine = perf_counter(), _Flight()
        with self._changed:
            first = self._flights.setdefault(key, mine)
            if first is not mine:
                scope = Scope.current()
                while not first.over:
                    scope.wait(self._changed)
        if first is not mine:
            yield Waited(perf_counter() - start)
            return
        try:
            yield Waited(0.0)
        finally:
            with self._changed:
                mine.over = True
                del self._flights[key]
                self._changed.notify_all()


_UNDER_WAY = InFlight()


def turn(key: object) -> AbstractContextManager[Waited]:
    """`InFlight.turn` among all requests of the command."""
    elsewhere = current().get(Elsewhere)
    return _UNDER_WAY.turn(key) if elsewhere is None else elsewhere.link.turn(key)
