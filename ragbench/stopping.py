"""The one stop of the process: after it no call is begun, and what is under way ends soon.

Ctrl-C calls `stop_all`. Code that makes calls asks `stopped` before each, and whatever waits looks
again every `POLL_S`, by `sleep` or in a loop of its own.
"""

import time
from collections.abc import Callable

#: Seconds that calls under way have to end by themselves, for they are paid.
GRACE_S = 1.0
#: The longest that anything waits without asking whether it still may.
POLL_S = 0.25

_stopped_at: float | None = None


def stopped() -> bool:
    """Returns whether the process was stopped: nothing may be begun."""
    return _stopped_at is not None


def cut_off() -> bool:
    """Returns whether it was stopped so long ago that calls under way are broken off."""
    return _stopped_at is not None and time.monotonic() > _stopped_at + GRACE_S


def stop_all() -> None:
    """Stop; safe in a signal handler, since it takes no lock."""
    global _stopped_at
    _stopped_at = time.monotonic()


def reset() -> None:
    """Let calls be made again, as for another command of the same process."""
    global _stopped_at
    _stopped_at = None


def sleep(seconds: float, over: Callable[[], bool]) -> None:
    """Return after `seconds`, or soon after the process is stopped or `over` is true."""
    end = time.monotonic() + seconds
    while not (stopped() or over()) and (seconds_left := end - time.monotonic()) > 0:
        time.sleep(min(seconds_left, POLL_S))
