"""Makes calls wait for a server's rate limits: those it states, those it shows, those you set.

Until the server rejects a call (HTTP 429) the calls open at once grow by one per answer; those to a
server given by its address are not limited before that. Then calls a second are limited: additive
increase, multiplicative decrease, one decrease per episode of rejections. The increase doubles
while nothing is rejected, so that a raised limit is found soon. What replies say of the server's
limits and a limit that a person sets are kept beside that.

One `RateLimit` serves all LMs of the process that share a server's limits; `Rate` decides, and this
makes threads wait by it. A call that was rejected goes again before the others.
"""

from __future__ import annotations

import hashlib
import math
import threading
from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from dspy.lm15 import RateLimitError

from ragbench import stopping
from ragbench.lms.calls.counting import count
from ragbench.lms.calls.middleware import Attempt
from ragbench.lms.calls.rate_headers import quotas

START_OPEN = 8
#: Rejections among the last calls after which the rate decreases; single ones may be chance.
MANY, LAST = 4, 25
#: What a decrease leaves of the rate: usually, and where the one before it was not enough.
KEPT, KEPT_AGAIN = 0.85, 0.5
#: The rate grows by this share a second; the share doubles every so many seconds.
STEP, DOUBLES_S = 0.03, 5.0
#: Answered calls that show a rate, and that a decrease was enough.
SETTLED = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 60.0
#: Resets further away are not waited for: the server may say no by itself.
LONGEST_RESET_S = 120.0
#: Rejections in a row after which a call is given up; the pauses between them grow to a minute.
REJECTIONS = 30


@dataclass
class _PerMinute:
    """A limit that a person set, kept by spacing: `amount` takes `amount / most` minutes."""

    most: float
    free_at: float = 0.0

    def take(self, now: float, amount: float) -> None:
        self.free_at = max(self.free_at, now) + 60.0 * amount / self.most


@dataclass
class _Quota:
    """The quota of one unit that the server reported, less what was sent since."""

    left: float
    until: float


@dataclass(eq=False)
class Started:
    """A call under way; tokens are estimates until it ends."""

    prompt_tokens: int = 0
    reply_tokens: int = 0
    at: float = 0.0

    def need(self, unit: str) -> int:
        """How much of one of the server's units the call needs."""
        parts = {"input-tokens": self.prompt_tokens, "output-tokens": self.reply_tokens}
        return {**parts, "tokens": sum(parts.values()), "requests": 1}[unit]


@dataclass
class Rate:
    """The known limits of one server. Takes the time from its caller; not thread-safe."""

    open: set[Started] = field(default_factory=set)
    most_open: float = START_OPEN
    decreases: int = 0

    def __post_init__(self) -> None:
        self._rate: float | None = None  # at the last decrease
        self._busy_s = 0.0  # since then, while calls waited
        self._last_start = self._decreased_at = self._next_at = self._resume_at = float("-inf")
        self._answers = 0  # since the last decrease
        self._in_vain = 0  # pauses in a row after which the first call was rejected again
        self._taken: deque[float] = deque(maxlen=1000)  # starts of the calls last answered
        self._rejected: deque[bool] = deque(maxlen=LAST)
        self._quotas: dict[str, _Quota] = {}
        self._set: dict[str, _PerMinute] = {}

    def limit(self, unit: str, per_minute: float | None) -> None:
        """Keep a fixed limit on `requests` or `tokens` as well; of several the lowest counts."""
        known = self._set.get(unit)
        if per_minute is not None and (known is None or per_minute < known.most):
            self._set[unit] = _PerMinute(per_minute)

    @property
    def per_second(self) -> float | None:
        """Calls that may be started in a second; None until the server has rejected some."""
        if self._rate is None:
            return None
        doublings, rest = divmod(self._busy_s, DOUBLES_S)
        step = math.pow(2.0, doublings)
        grown = DOUBLES_S * (step - 1) + rest * step
        return self._rate * (1 + STEP * grown)

    def wait_s(self, now: float, call: Started) -> float | None:
        """Seconds until `call` may start, 0 for now; None: not before another one has ended."""
        if self._rate is None and len(self.open) >= self.most_open:
            return None
        times = [self._resume_at, self._next_at, *(one.free_at for one in self._set.values())]
        for unit, quota in list(self._quotas.items()):
            if now >= quota.until:
                del self._quotas[unit]
            elif quota.left < call.need(unit):
                times.append(quota.until)
        return max(0.0, max(times) - now)

    def start(self, now: float, call: Started, *, waited: bool = True) -> None:
        """Count `call` as started now, after it `waited` for its turn or not."""
        self.open.add(call)
        call.at = now
        if waited and self._rate is not None:
            self._busy_s = min(self._busy_s + min(now - self._last_start, 1.0), 10 * DOUBLES_S)
        self._last_start = now
        if rate := self.per_second:
            # Some slack, so that a thread that wakes up late loses nothing.
            self._next_at = max(self._next_at, now - 1 / rate) + 1 / rate
        for unit, one in self._set.items():
            one.take(now, call.need(unit))
        for unit, quota in self._quotas.items():
            quota.left -= call.need(unit)

    def answer(self, call: Started, *, tokens: int) -> None:
        """`call` got an answer of so many tokens, those of the prompt included."""
        self.open.discard(call)
        self._taken.append(call.at)
        self._rejected.append(False)
        self._answers += 1
        self._in_vain = 0
        if self._rate is None and not self.decreases:
            self.most_open += 1
        if "tokens" in self._set:
            one = self._set["tokens"]
            one.free_at += 60.0 * (tokens - call.need("tokens")) / one.most

    def drop(self, call: Started) -> None:
        """`call` ended in a way that says nothing about the server's limits."""
        self.open.discard(call)

    def reject(self, now: float, call: Started, *, retry_after: float | None = None) -> None:
        """The server said 429 to `call`: a decrease, unless the last one came after its start."""
        self.open.discard(call)
        self._rejected.append(True)
        if retry_after is not None:
            self._resume_at = max(self._resume_at, now + min(retry_after, LONGEST_RESET_S))
        few = self._rate is not None and self._answers and sum(self._rejected) < MANY
        if few or call.at <= self._decreased_at:
            return
        pause = min(FIRST_PAUSE_S * 2.0**self._in_vain, LONGEST_PAUSE_S)
        self._resume_at = self._next_at = max(self._resume_at, now + pause)
        self._decrease(now)
        self._decreased_at, self._busy_s, self._answers = now, 0.0, 0
        self._in_vain += 1
        self.decreases += 1
        self._rejected.clear()

    def _decrease(self, now: float) -> None:
        if rate := self.per_second:
            self._rate = rate * (KEPT if self._answers >= SETTLED else KEPT_AGAIN)
            return
        most = self.most_open if math.isfinite(self.most_open) else len(self.open) + 1
        self.most_open = max(1.0, most / 2)
        seen = [at for at in self._taken if at > now - 3.0]
        if len(seen) >= SETTLED:
            self._rate = KEPT * len(seen) / max(now - min(seen), 1.0)

    def told(self, now: float, headers: Mapping[str, Sequence[str]]) -> None:
        """Take in the rate-limit headers of a reply: what is left, and when it is whole again."""
        for unit, (left, reset_s) in quotas(headers).items():
            if reset_s > LONGEST_RESET_S:
                self._quotas.pop(unit, None)
                continue
            # The server may not have counted the calls that are still open.
            sent = sum(call.need(unit) for call in self.open)
            self._quotas[unit] = _Quota(left - sent, now + reset_s)


@dataclass(order=True)
class _Waiting:
    """A call that waits for its turn; those that were tried before come first, then by arrival."""

    untried: bool
    number: int
    turn: threading.Condition = field(compare=False)


class RateLimit:
    """Middleware that lets calls start when the server's limits allow; safe from many threads."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.rate = Rate(most_open=most_open)
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._arrived = 0
        self._open: dict[Attempt, Started] = {}

    def before_call(self, attempt: Attempt) -> None:
        """Wait until the attempt may start.

        Raises:
            CallRefusedError: it was stopped while it waited.
        """
        call = Started(attempt.prompt_tokens, attempt.reply_tokens)
        with self._lock:
            waits = bool(self._waiting) or self.rate.wait_s(monotonic(), call) != 0.0
            if waits:
                self._wait(attempt, call)
            self.rate.start(monotonic(), call, waited=waits)
            self._open[attempt] = call
            self._call_next()

    def after_call(self, attempt: Attempt) -> None:
        """Learn from what came of it."""
        error = attempt.error
        with self._lock:
            call = self._open.pop(attempt)
            if isinstance(error, RateLimitError):
                self.rate.reject(monotonic(), call, retry_after=error.retry_after)
            elif attempt.reply is not None:
                self.rate.answer(call, tokens=attempt.reply.tokens)
            else:
                self.rate.drop(call)
            if headers := attempt.rate_limits:
                self.rate.told(monotonic(), headers)
            self._call_next()
        if isinstance(error, RateLimitError):
            count("rate_limited")

    def holds(self, attempt: Attempt, held: int) -> bool:
        """Whether the attempt was rejected, and not too often to wait for another turn."""
        error = attempt.error
        if not isinstance(error, RateLimitError) or held >= REJECTIONS:
            return False
        return (error.retry_after or 0.0) <= LONGEST_RESET_S

    def limit(self, *, rpm: float | None, tpm: float | None) -> None:
        """Keep these fixed limits, too, in requests and in tokens a minute."""
        with self._lock:
            self.rate.limit("requests", rpm)
            self.rate.limit("tokens", tpm)

    def _wait(self, attempt: Attempt, call: Started) -> None:
        self._arrived += 1
        turn = stopping.wakes(threading.Condition(self._lock))
        mine = _Waiting(attempt.number == 1, self._arrived, turn)
        insort(self._waiting, mine)
        try:
            while True:
                first = self._waiting[0] is mine
                seconds = self.rate.wait_s(monotonic(), call) if first else None
                if seconds == 0.0:
                    return
                attempt.scope.wait(turn, seconds)
        finally:
            self._waiting.remove(mine)
            if self._waiting:  # also where this one gave up
                self._call_next()

    def _call_next(self) -> None:
        if self._waiting:
            self._waiting[0].turn.notify()


_shared: dict[tuple[str, ...], RateLimit] = {}
_shared_lock = threading.Lock()


def shared_rate_limit(provider: str, model: str, *, api_base: str, key: str) -> RateLimit:
    """The rate limit of a server, the same for all that share its limits.

    A server given by its address has one for all its models, and gets as many calls at once as
    there are until it rejects one; a provider limits each model of each key by itself.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    place = (api_base, digest) if api_base else (provider, model, digest)
    with _shared_lock:
        return _shared.setdefault(place, RateLimit(math.inf if api_base else START_OPEN))
