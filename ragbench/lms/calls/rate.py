"""Rate limits of a server: when calls may start, from its rejections and the user's limits.

A single rejection (HTTP 429) may be chance: its call waits a moment and is sent again, and other
calls do not wait. If rejections cluster, calls per second are limited to the number that the server
accepted in the second before. From there the rate grows, ever faster, until the next rejection. If
even a quarter of the rate is rejected, the cluster was chance, and half of the rate is tried again.
Before the first cluster, the number of open calls grows by one per answer. Calls to a server given
by its address are not limited in this way.

`Rate` decides and takes the time from its caller. `RateLimit` makes threads wait.
"""

import hashlib
import math
import threading
from collections import deque
from dataclasses import dataclass
from time import monotonic

from dspy.lm15 import RateLimitError

from ragbench.context import POLL_S
from ragbench.ledger import count
from ragbench.lms.calls.limits import Attempt

START_OPEN = 8
#: (Rejections, calls in a row) that form a cluster. If a server rejects every fifth call by
#: chance, fewer than one run in a hundred has a false cluster.
CLUSTERS = ((16, 25), (48, 120))
#: Factor on the rate after a rejection.
KEPT = 0.9
#: Growth of the rate per second, seconds after which the growth doubles, and maximum doublings.
GROWTH, DOUBLES_S, DOUBLINGS = 0.03, 4.0, 5.0
PAUSE_S = 0.2
#: Later resets are not awaited: the server may reject the call.
LONGEST_RESET_S = 120.0


@dataclass(eq=False)
class Started:
    """A call that was started, or waits for its turn. `tokens` are estimated until it ends."""

    tokens: int = 0
    at: float = 0.0
    waited: bool = False
    rejected: bool = False


class Rate:
    """The known limits of one server. Not thread-safe. Calls get their turns one by one."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.most_open = most_open
        self.n_open = 0
        #: Calls a second. None until rejections clustered.
        self.per_second: float | None = None
        self._found = 0.0  # the rate at the first cluster
        self._next_at = self._cut_at = -math.inf
        self._recent: deque[Started] = deque(maxlen=1000)
        #: Unit -> the user's maximum per minute, and the time at which the next call may start.
        self._fixed: dict[str, float] = {}
        self._free_at: dict[str, float] = {}

    def limit(self, unit: str, per_minute: float | None) -> None:
        """Keep a fixed limit on `calls` or `tokens` as well. The lowest of several applies.

        Args:
            unit: calls or tokens.
            per_minute: Maximum number per minute. None for no limit.
        """
        if per_minute is not None:
            self._fixed[unit] = min(per_minute, self._fixed.get(unit, math.inf))
            self._free_at.setdefault(unit, 0.0)

    def wait_s(self, now: float) -> float:
        """Return seconds until the next call may start. Infinite if a call must end first."""
        if self.per_second is None and self.n_open >= self.most_open:
            return math.inf
        return max(self._next_at, *self._free_at.values(), now) - now

    def start(self, now: float, call: Started) -> None:
        """Record that `call` is sent.

        Args:
            now: Time of a monotonic clock.
            call: The call.
        """
        call.at = now
        self.n_open += 1
        self._recent.append(call)
        if self.per_second:
            self._next_at = max(now, self._next_at) + 1 / self.per_second
        for unit, most in self._fixed.items():
            need = call.tokens if unit == "tokens" else 1
            self._free_at[unit] = max(now, self._free_at[unit]) + 60.0 * need / most

    def answer(self, now: float, call: Started, *, tokens: int) -> None:
        """Record an answer to `call` with its tokens, those of the prompt included.

        Args:
            now: Time of a monotonic clock.
            call: The answered call.
            tokens: Tokens of prompt and reply.
        """
        self.n_open -= 1
        if self.per_second is None:
            self.most_open += 1
        elif call.waited:
            faster = 2.0 ** min((now - self._cut_at) / DOUBLES_S, DOUBLINGS)
            self.per_second *= 1 + GROWTH * min(faster / self.per_second, 1.0)
            self._next_at = min(self._next_at, now + 1 / self.per_second)
        if "tokens" in self._fixed:
            self._free_at["tokens"] += 60.0 * (tokens - call.tokens) / self._fixed["tokens"]

    def reject(self, now: float, call: Started, *, retry_after: float | None = None) -> None:
        """Record that the server rejected `call` with 429.

        Args:
            now: Time of a monotonic clock.
            call: The rejected call.
            retry_after: Seconds that the server demands. None if it states none.
        """
        self.n_open -= 1
        call.rejected = True
        if call.at <= self._cut_at:  # this rejection belongs to the last cut
            return
        # Calls that started later are not counted: a rejection comes sooner than an answer.
        started = [earlier.rejected for earlier in self._recent if earlier.at <= call.at]
        clusters = any(sum(started[-window:]) >= n for n, window in CLUSTERS)
        if self.per_second is None and not clusters:
            return
        taken = 0
        for earlier in self._recent:
            taken += not earlier.rejected and now - 1.0 < earlier.at <= now
        taken = max(1, taken)
        if self.per_second is None:
            self._found = KEPT * taken
        self.per_second = KEPT * min(taken, self.per_second or math.inf)
        if 1.0 < self.per_second < self._found / 4:  # fewer calls were rejected no less: by chance
            self.per_second = self._found / 2
        pause = PAUSE_S if clusters else 0.0
        self._next_at = now + max(pause, min(retry_after or 0.0, LONGEST_RESET_S))
        self._cut_at = now


class RateLimit:
    """Makes threads wait until `Rate` lets their calls start: one for its turn, others for it."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.rate = Rate(most_open)
        self._queue = threading.Lock()
        self._changed = threading.Condition()

    def limit(self, *, rpm: float | None, tpm: float | None) -> None:
        """Keep these fixed limits, too, in calls and in tokens a minute.

        Args:
            rpm: Maximum number of calls per minute. None for no limit.
            tpm: Maximum number of tokens per minute. None for no limit.
        """
        with self._changed:
            self.rate.limit("calls", rpm)
            self.rate.limit("tokens", tpm)

    def enter(self, attempt: Attempt) -> Started:
        """Return the call that `attempt` is, when it may start.

        Raises:
            CallRefusedError: it was stopped while it waited.
        """
        call = Started(attempt.tokens)
        while not self._queue.acquire(timeout=POLL_S):
            attempt.scope.check()
        try:
            with self._changed:
                while (seconds := self.rate.wait_s(monotonic())) > 0:
                    call.waited = True
                    attempt.scope.wait(self._changed, seconds)
                self.rate.start(monotonic(), call)
                return call
        finally:
            self._queue.release()

    def leave(self, call: Started, attempt: Attempt) -> None:
        """Learn from the outcome of the call.

        Args:
            call: The call as `enter` returned it.
            attempt: The attempt, with its reply or error.
        """
        error = attempt.error
        with self._changed:
            if isinstance(error, RateLimitError):
                self.rate.reject(monotonic(), call, retry_after=error.retry_after)
                count("rate_limited")
            elif attempt.reply is not None:
                self.rate.answer(monotonic(), call, tokens=attempt.reply.tokens)
            else:  # the outcome does not show the server's limits
                self.rate.n_open -= 1
            self._changed.notify()


_shared: dict[tuple[str, ...], RateLimit] = {}
_shared_lock = threading.Lock()


def shared_rate_limit(provider: str, model: str, *, api_base: str, key: str) -> RateLimit:
    """Return the rate limit of a server, shared by everything that uses the same server and key.

    A server given by its address has one limit for all its models, and gets all calls at once until
    it rejects some. A provider limits each model of each key separately.

    Args:
        provider: Name of the provider.
        model: Name of the model.
        api_base: Address of the server. Empty for the provider's own.
        key: The key, of which only a hash is stored.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    place = (api_base, "", digest) if api_base else (provider, model, digest)
    with _shared_lock:
        return _shared.setdefault(place, RateLimit(math.inf if api_base else START_OPEN))
