"""When calls to a server may start: by what it rejects, and by the limits that a person set.

A single rejection (HTTP 429) may be chance: its call waits a moment and goes again, and no other
does. Where rejections cluster, calls a second are limited to what the server took in the second
before; from there the rate grows, ever faster while nothing is rejected, and yields a little to
each few rejections. A rejection uses up none of a call's retries.

Before that, the calls open at once grow by one per answer; those to a server given by its address
are not limited. `Rate` decides and takes the time from its caller; `RateLimit` makes threads wait.
"""

import hashlib
import math
import threading
from collections import deque
from dataclasses import dataclass
from time import monotonic

from dspy.lm15 import RateLimitError

from ragbench.ledger import count
from ragbench.lms.calls.limits import Attempt
from ragbench.stopping import POLL_S

START_OPEN = 8
#: Rejections among so many calls started one after the other that are a cluster: one call in ten
#: rejected by chance passes for it in one run of a thousand.
CLUSTERS = ((12, 25), (28, 120))
#: Rejections since the rate was last lowered that lower it a little.
MANY = 3
#: What is left of the rate: of what the server took, after `MANY` (no less than the share `LEAST`
#: of what the server took), and where a cut was in vain.
KEPT, KEPT_OF_MANY, LEAST, KEPT_IN_VAIN = 0.9, 0.9, 0.7, 0.5
#: Answers after a cut that show that it was enough.
SETTLED = 3
#: The rate grows by this share a second, twice as fast after each so many seconds of peace.
STEP, DOUBLES_S = 0.03, 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 60.0
#: Resets further away are not waited for: the server may say no by itself.
LONGEST_RESET_S = 120.0


@dataclass(eq=False)
class Started:
    """A call that was started, or waits for its turn; `tokens` are estimated until it ends."""

    tokens: int = 0
    at: float = 0.0
    waited: bool = False
    rejected: bool = False


@dataclass
class _PerMinute:
    """A limit that a person set, kept by spacing: `amount` takes `amount / most` minutes."""

    most: float
    free_at: float = 0.0


class Rate:
    """The known limits of one server; not thread-safe. Calls get their turns one by one."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.most_open, self.n_open = most_open, 0
        #: Calls a second; None until rejections clustered.
        self.per_second: float | None = None
        self._taken = 0.0  # calls a second that the server took before the last cut
        self._sure = False  # whether that was seen for a whole second
        self._in_vain = 0  # cuts in a row that were not enough
        self._answers = self._rejections = 0  # since the last cut; since the rate was lowered
        self._next_at = self._cut_at = self._peace_since = -math.inf
        self._recent: deque[Started] = deque(maxlen=1000)
        self._set: dict[str, _PerMinute] = {}

    def limit(self, unit: str, per_minute: float | None) -> None:
        """Keep a fixed limit on `calls` or `tokens` as well; of several the lowest counts."""
        known = self._set.get(unit)
        if per_minute is not None and (known is None or per_minute < known.most):
            self._set[unit] = _PerMinute(per_minute)

    def wait_s(self, now: float) -> float:
        """Seconds until the next call may start; infinite while one has to end first."""
        if self.per_second is None and self.n_open >= self.most_open:
            return math.inf
        return max(self._next_at, *(fixed.free_at for fixed in self._set.values()), now) - now

    def start(self, now: float, call: Started) -> None:
        """`call` is sent."""
        call.at = now
        self.n_open += 1
        self._recent.append(call)
        if self.per_second:
            self._next_at = max(now, self._next_at) + 1 / self.per_second
        for unit, fixed in self._set.items():
            need = call.tokens if unit == "tokens" else 1
            fixed.free_at = max(now, fixed.free_at) + 60.0 * need / fixed.most

    def answer(self, now: float, call: Started, *, tokens: int) -> None:
        """`call` got an answer of so many tokens, those of the prompt included."""
        self.n_open -= 1
        if call.at > self._cut_at:
            self._answers += 1
            self._in_vain = 0 if self._answers >= SETTLED else self._in_vain
        if self.per_second is None:
            self.most_open += 1
        elif call.waited:
            self.per_second *= 1 + self._growth(now, self.per_second)
            self._next_at = min(self._next_at, now + 1 / self.per_second)
        if fixed := self._set.get("tokens"):
            fixed.free_at += 60.0 * (tokens - call.tokens) / fixed.most

    def _growth(self, now: float, per_second: float) -> float:
        """The share by which one answer raises the rate."""
        if not self._sure:
            return min(0.5, 1 / per_second)
        doublings = min((now - self._peace_since) / max(DOUBLES_S, 100 / per_second), 5.0)
        return float(min(STEP / per_second, 0.003) * 2.0**doublings)

    def drop(self) -> None:
        """A call ended in a way that says nothing about the server's limits."""
        self.n_open -= 1

    def reject(self, now: float, call: Started, *, retry_after: float | None = None) -> None:
        """The server said 429 to `call`."""
        self.n_open -= 1
        call.rejected = True
        if call.at <= self._cut_at:  # of the cluster before, which was larger than it seemed
            if not self._answers and not self._in_vain:
                self._limit_to(KEPT * self._taken_before(self._cut_at))
            return
        self._peace_since = now
        self._rejections += 1
        if self.per_second is not None and self._answers < SETTLED:
            self._in_vain += 1
            self._cut(now, retry_after)
        elif self._clustered(call):
            self._cut(now, retry_after)
        elif self.per_second is not None and self._rejections >= MANY and self._sure:
            self._rejections = 0
            least = min(LEAST * self._taken, self.per_second)
            self.per_second = max(KEPT_OF_MANY * self.per_second, least)

    def _clustered(self, call: Started) -> bool:
        """Whether many of the calls were rejected that started before `call`, and since a cut.

        Calls that started later are not counted: a rejection comes sooner than an answer.
        """
        started = [one for one in self._recent if self._cut_at < one.at <= call.at]
        return any(sum(one.rejected for one in started[-of:]) >= n for n, of in CLUSTERS)

    def _cut(self, now: float, retry_after: float | None) -> None:
        pause = min(FIRST_PAUSE_S * 2.0**self._in_vain, LONGEST_PAUSE_S)
        if self._in_vain > 1 and self.per_second:
            self._limit_to(max(KEPT_IN_VAIN * self.per_second, 1 / pause))
        elif not self._in_vain:
            self._sure = bool(self._recent) and self._recent[0].at < now - 1.0
            self._limit_to(KEPT * self._taken_before(now))
        pause = max(pause, min(retry_after or 0.0, LONGEST_RESET_S))
        self._next_at, self._cut_at = now + pause, now
        self._answers = self._rejections = 0

    def _limit_to(self, rate: float) -> None:
        self._taken = self.per_second = rate

    def _taken_before(self, now: float) -> float:
        """Calls that the server took in the second before, 1 at the least, by what is known now."""
        taken = sum(not call.rejected and now - 1.0 < call.at <= now for call in self._recent)
        return max(taken, 1)


class RateLimit:
    """Makes threads wait until `Rate` lets their calls start: one for its turn, others for it."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.rate = Rate(most_open)
        self._queue = threading.Lock()
        self._changed = threading.Condition()

    def limit(self, *, rpm: float | None, tpm: float | None) -> None:
        """Keep these fixed limits, too, in calls and in tokens a minute."""
        with self._changed:
            self.rate.limit("calls", rpm)
            self.rate.limit("tokens", tpm)

    def enter(self, attempt: Attempt) -> Started:
        """The call that `attempt` is, when it may start.

        Raises:
            CallRefusedError: it was stopped while it waited.
        """
        call = Started(attempt.tokens)
        while not self._queue.acquire(timeout=POLL_S):
            attempt.scope.check()
        try:
            with self._changed:
                while (left := self.rate.wait_s(monotonic())) > 0:
                    call.waited = True
                    attempt.scope.wait(self._changed, left)
                self.rate.start(monotonic(), call)
                return call
        finally:
            self._queue.release()

    def leave(self, call: Started, attempt: Attempt) -> None:
        """Learn from what came of it."""
        error = attempt.error
        with self._changed:
            if isinstance(error, RateLimitError):
                self.rate.reject(monotonic(), call, retry_after=error.retry_after)
            elif attempt.reply is not None:
                self.rate.answer(monotonic(), call, tokens=attempt.reply.tokens)
            else:
                self.rate.drop()
            self._changed.notify()
        if isinstance(error, RateLimitError):
            count("rate_limited")


_shared: dict[tuple[str, ...], RateLimit] = {}
_shared_lock = threading.Lock()


def shared_rate_limit(provider: str, model: str, *, api_base: str, key: str) -> RateLimit:
    """The rate limit of a server, the same for all that share its limits.

    A server given by its address has one for all its models, and gets as many calls at once as
    there are until it rejects some; a provider limits each model of each key by itself.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    place = (api_base, digest) if api_base else (provider, model, digest)
    with _shared_lock:
        return _shared.setdefault(place, RateLimit(math.inf if api_base else START_OPEN))
