"""Makes calls wait for a server's rate limits: those it states, those it shows, those you set.

One `Pace` governs all LMs of the process that share a server's limits; `Tempo` decides, and this
makes threads wait by it. A call that was rejected goes again before the others.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import insort
from dataclasses import dataclass, field
from time import monotonic

from dspy.lm15 import RateLimitError

from ragbench.lms.counting import count
from ragbench.lms.engine import UNBOUNDED_REPLY, prompt_tokens
from ragbench.lms.governor import Attempt
from ragbench.lms.specs import HostedSpec
from ragbench.lms.tempo import LONGEST_RESET_S, Started, Tempo

#: Rejections in a row after which a call is given up; the pauses between them grow to a minute.
REJECTIONS = 30


@dataclass(order=True)
class _Waiting:
    """A call that waits for its turn; those that were tried before come first, then by arrival."""

    untried: bool
    number: int
    turn: threading.Condition = field(compare=False)


class Pace:
    """A governor that lets calls start when the server's limits allow; safe from many threads."""

    def __init__(self) -> None:
        self.tempo = Tempo()
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._arrived = 0
        self._open: dict[int, Started] = {}  # by identity of the attempt

    def before_call(self, attempt: Attempt) -> None:
        """Wait until the attempt may start."""
        request = attempt.request
        reply = request.config.max_tokens or UNBOUNDED_REPLY
        call = Started(0.0, prompt_tokens(request), reply)
        with self._lock:
            self._arrived += 1
            mine = _Waiting(attempt.number == 1, self._arrived, threading.Condition(self._lock))
            insort(self._waiting, mine)
            try:
                self._wait(mine, call)
                self.tempo.start(monotonic(), call)
                self._open[id(attempt)] = call
            finally:
                self._waiting.remove(mine)
                self._call_next()

    def after_call(self, attempt: Attempt) -> None:
        """Learn from what came of it."""
        error = attempt.error
        with self._lock:
            call = self._open.pop(id(attempt))
            if isinstance(error, RateLimitError):
                self.tempo.reject(monotonic(), call, retry_after=error.retry_after)
            elif attempt.response is not None:
                usage = attempt.response.usage
                tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
                self.tempo.answer(call, tokens=tokens, busy=bool(self._waiting))
            else:
                self.tempo.drop(call)
            self.tempo.told(monotonic(), attempt.rate_limits)
            self._call_next()
        if isinstance(error, RateLimitError):
            count("rate_limited")

    def goes_again(self, attempt: Attempt, held: int) -> bool:
        """Whether the attempt was rejected, and not too often to wait for another turn."""
        error = attempt.error
        return (
            isinstance(error, RateLimitError)
            and held < REJECTIONS
            and (error.retry_after or 0.0) <= LONGEST_RESET_S
        )

    def limit(self, *, rpm: float | None, tpm: float | None) -> None:
        """Keep these fixed limits, too, in requests and in tokens a minute."""
        with self._lock:
            self.tempo.limit("requests", rpm)
            self.tempo.limit("tokens", tpm)

    def _wait(self, mine: _Waiting, call: Started) -> None:
        while True:
            seconds = None
            if self._waiting[0] is mine:
                seconds = self.tempo.wait_s(monotonic(), call)
                if seconds == 0.0:
                    return
            mine.turn.wait(seconds)

    def _call_next(self) -> None:
        if self._waiting:
            self._waiting[0].turn.notify()


_paces: dict[tuple[str, ...], Pace] = {}
_paces_lock = threading.Lock()


def shared_pace(spec: HostedSpec) -> Pace:
    """The pace of the limits that `spec` falls under, the same for all LMs that share them."""
    return pace_of(spec.provider, spec.model, api_base=spec.api_base or "", key=spec.key() or "")


def pace_of(provider: str, model: str, *, api_base: str, key: str) -> Pace:
    """The pace of a server, the same for all that share its limits.

    A server given by its address has one for all its models; a provider limits each model of each
    key by itself.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    place = (api_base, digest) if api_base else (provider, model, digest)
    with _paces_lock:
        return _paces.setdefault(place, Pace())
