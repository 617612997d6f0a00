"""Stop the process: no new call begins, and running calls end soon.

Ctrl-C calls `stop_all`. Code checks `stopped` before each call. Waiting code checks it every
`POLL_S`, by `sleep` or in its own loop.
"""

import time
from collections.abc import Callable

#: Seconds that running calls have to finish, because they are paid.
GRACE_S = 1.0
#: The longest that anything waits without asking whether it still may.
POLL_S = 0.25

_stopped_at: float | None = None


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


def reset() -> None:
    """Let calls be made again, as for another command of the same process."""
    global _stopped_at
    _stopped_at = None


def sleep(seconds: float, over: Callable[[], bool]) -> None:
    """Wait until the time has passed, the process is stopped or a condition holds.

    Args:
        seconds: Time to wait, in seconds.
        over: Function that ends the wait if it returns True.
    """
    end = time.monotonic() + seconds
    while not (stopped() or over()) and (seconds_left := end - time.monotonic()) > 0:
        time.sleep(min(seconds_left, POLL_S))
