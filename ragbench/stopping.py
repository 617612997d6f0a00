"""The one stop of the process: after it no call is begun, and whatever waits wakes up.

Ctrl-C calls `stop_all`. Code that makes calls asks `stopped` before each, waits by `sleep`, and
registers what else it waits on: `wakes` a condition, `ends` a function that breaks off what is
under way, such as the connections of a client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from weakref import WeakMethod, WeakSet

#: Seconds that calls under way have to end by themselves, for they are paid.
GRACE_S = 1.0

_stopped = threading.Event()
_changed = threading.Condition()
_conditions: WeakSet[threading.Condition] = WeakSet()
_ends: set[WeakMethod[Callable[[], None]]] = set()
_lock = threading.Lock()


def stopped() -> bool:
    """Whether the process was stopped: nothing may be begun."""
    return _stopped.is_set()


def stop_all() -> None:
    """Stop: at once for what is not begun, after `GRACE_S` for what is under way.

    Safe in a signal handler, since locks are taken by another thread.
    """
    _stopped.set()
    threading.Thread(target=_stop, name="stop", daemon=True).start()


def reset() -> None:
    """Let calls be made again, as for another command of the same process."""
    _stopped.clear()


def wake_all() -> None:
    """Wake whatever waits, to look again at what it waits for."""
    threading.Thread(target=_wake, name="wake", daemon=True).start()


def wakes(condition: threading.Condition) -> threading.Condition:
    """`condition`, which `wake_all` notifies from now on for as long as it exists."""
    with _lock:
        _conditions.add(condition)
    return condition


def ends(method: Callable[[], None]) -> None:
    """Call the bound `method` when the process stops, unless its object is gone by then."""
    with _lock:
        _ends.add(WeakMethod(method, _ends.discard))


def sleep(seconds: float, over: Callable[[], bool]) -> None:
    """Return after `seconds`, or as soon as the process is stopped or `over` is true.

    `over` is asked again whenever something calls `wake_all`.
    """
    end = time.monotonic() + seconds
    with _changed:
        while not (stopped() or over()) and (left := end - time.monotonic()) > 0:
            _changed.wait(left)


def _stop() -> None:
    _wake()
    time.sleep(GRACE_S)
    with _lock:
        methods = [reference() for reference in _ends]
    for method in methods:
        if method is not None:
            method()


def _wake() -> None:
    with _lock:
        conditions = [_changed, *_conditions]
    for condition in conditions:
        with condition:
            condition.notify_all()
