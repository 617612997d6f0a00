"""When calls to a server may start: by the limits it states, those it shows, and those you set.

A single rejection (HTTP 429) may be chance: its call waits a moment and goes again, and no other
does. Where rejections cluster, calls a second are limited to what the server took in the second
before; from there the rate grows, ever faster while nothing is rejected, and yields a little to
each few rejections. A rejection uses up none of a call's retries.

Before that, the calls open at once grow by one per answer; those to a server given by its address
are not limited. `Rate` decides and takes the time from its caller; `RateLimit` makes threads wait.
"""

import hashlib
import math
import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
#: What is left of the rate: of what the server took, after `MANY`, and where a cut was in vain.
KEPT, KEPT_OF_MANY, KEPT_IN_VAIN = 0.9, 0.9, 0.5
#: `MANY` rejections lower the rate no further than to this share of what the server took.
LEAST = 0.7
#: A rate so many times as high gives new turns to calls that wait.
FASTER = 1.5
#: Answers after a cut that show that it was enough.
SETTLED = 3
#: The rate grows by this share a second, twice as fast after each so many seconds of peace.
STEP, DOUBLES_S = 0.03, 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 60.0
#: Resets further away are not waited for: the server may say no by itself.
LONGEST_RESET_S = 120.0


@dataclass(eq=False)
class Started:
    """A call that was started; tokens are estimates until it ends."""

    prompt_tokens: int = 0
    reply_tokens: int = 0
    at: float = 0.0
    waited: bool = False
    rejected: bool = False

    def need(self, unit: str) -> int:
        """How much of one of the server's units the call needs."""
        parts = {"input-tokens": self.prompt_tokens, "output-tokens": self.reply_tokens}
        return {**parts, "tokens": sum(parts.values()), "requests": 1}[unit]


@dataclass
class _PerMinute:
    """A limit that a person set, kept by spacing: `amount` takes `amount / most` minutes."""

    most: float
    free_at: float = 0.0


@dataclass
class _Quota:
    """The quota of one unit that the server reported, less what was sent since."""

    left: float
    until: float


class Rate:
    """The known limits of one server; not thread-safe."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.most_open = most_open
        self.open: set[Started] = set()
        #: Calls a second; None until rejections clustered.
        self.per_second: float | None = None
        #: Raised when the rate has changed much: who waits for its turn asks for another one.
        self.epoch = 0
        self._rate_of_epoch = 0.0
        self._taken = 0.0  # calls a second that the server took before the last cut
        self._sure = False  # whether that was seen for a whole second
        self._in_vain = 0  # cuts in a row that were not enough
        self._answers = self._rejections = 0  # since the last cut; since the rate was lowered
        self._next_at = self._cut_at = self._peace_since = -math.inf
        self._recent: deque[Started] = deque(maxlen=1000)
        self._quotas: dict[str, _Quota] = {}
        self._set: dict[str, _PerMinute] = {}

    def limit(self, unit: str, per_minute: float | None) -> None:
        """Keep a fixed limit on `requests` or `tokens` as well; of several the lowest counts."""
        known = self._set.get(unit)
        if per_minute is not None and (known is None or per_minute < known.most):
            self._set[unit] = _PerMinute(per_minute)

    def full(self) -> bool:
        """Whether a call must end before another one starts."""
        return self.per_second is None and len(self.open) >= self.most_open

    def turn(self, now: float, call: Started) -> float:
        """When `call` may start; that turn is taken from then on."""
        at = max(now, self._next_at)
        for unit, quota in list(self._quotas.items()):
            if now >= quota.until:
                del self._quotas[unit]
            elif quota.left < call.need(unit):
                at = max(at, quota.until)
            else:
                quota.left -= call.need(unit)
        for unit, fixed in self._set.items():
            at = max(at, fixed.free_at)
            fixed.free_at = at + 60.0 * call.need(unit) / fixed.most
        if self.per_second:
            self._next_at = at + 1 / self.per_second
        call.waited = at > now
        return at

    def start(self, now: float, call: Started) -> None:
        """`call` is sent."""
        call.at, call.rejected = now, False
        self.open.add(call)
        self._recent.append(call)

    def answer(self, now: float, call: Started, *, tokens: int) -> None:
        """`call` got an answer of so many tokens, those of the prompt included."""
        self.open.discard(call)
        if call.at > self._cut_at:
            self._answers += 1
            self._in_vain = 0 if self._answers >= SETTLED else self._in_vain
        if self.per_second is None:
            self.most_open += 1
        elif call.waited:
            self.per_second *= 1 + self._growth(now)
            if self.per_second > FASTER * self._rate_of_epoch:
                self._next_at = now + 1 / self.per_second
                self._begin_epoch()
        if fixed := self._set.get("tokens"):
            fixed.free_at += 60.0 * (tokens - call.need("tokens")) / fixed.most

    def _growth(self, now: float) -> float:
        """The share by which one answer raises the rate."""
        assert self.per_second is not None
        if not self._sure:
            return min(0.5, 1 / self.per_second)
        doubles_s = max(DOUBLES_S, 100 / self.per_second)
        doublings = min((now - self._peace_since) / doubles_s, 5.0)
        return float(min(STEP / self.per_second, 0.003) * 2.0**doublings)

    def drop(self, call: Started) -> None:
        """`call` ended in a way that says nothing about the server's limits."""
        self.open.discard(call)

    def reject(self, now: float, call: Started, *, retry_after: float | None = None) -> None:
        """The server said 429 to `call`."""
        self.open.discard(call)
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

    def told(self, now: float, headers: Mapping[str, Sequence[str]]) -> None:
        """Take in the rate-limit headers of a reply: what is left, and when it is whole again."""
        for unit, (left, reset_s) in quotas(headers).items():
            if reset_s > LONGEST_RESET_S:
                self._quotas.pop(unit, None)
                continue
            # The server may not have counted the calls that are still open.
            sent = sum(call.need(unit) for call in self.open)
            self._quotas[unit] = _Quota(left - sent, now + reset_s)

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
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self._rate_of_epoch = self.per_second or 0.0

    def _limit_to(self, rate: float) -> None:
        self._taken = self.per_second = rate

    def _taken_before(self, now: float) -> float:
        """Calls that the server took in the second before, 1 at the least."""
        taken = sum(not call.rejected and now - 1.0 < call.at <= now for call in self._recent)
        return max(taken, 1)


class RateLimit:
    """Makes threads wait until `Rate` lets their calls start."""

    def __init__(self, most_open: float = START_OPEN) -> None:
        self.rate = Rate(most_open)
        self._ended = threading.Condition()

    def limit(self, *, rpm: float | None, tpm: float | None) -> None:
        """Keep these fixed limits, too, in requests and in tokens a minute."""
        with self._ended:
            self.rate.limit("requests", rpm)
            self.rate.limit("tokens", tpm)

    def enter(self, attempt: Attempt) -> Started:
        """The call that `attempt` is, when it may start.

        Raises:
            CallRefusedError: it was stopped while it waited.
        """
        call = Started(attempt.prompt_tokens, attempt.reply_tokens)
        while True:
            with self._ended:
                while self.rate.full():
                    attempt.scope.wait(self._ended)
                at, epoch = self.rate.turn(monotonic(), call), self.rate.epoch
                if not call.waited:
                    self.rate.start(monotonic(), call)
                    return call
            while self.rate.epoch == epoch and (left := at - monotonic()) > 0:
                attempt.scope.sleep(min(left, POLL_S))
                attempt.scope.check()
            with self._ended:
                if epoch == self.rate.epoch:
                    self.rate.start(monotonic(), call)
                    return call

    def leave(self, call: Started, attempt: Attempt) -> None:
        """Learn from what came of it."""
        error = attempt.error
        with self._ended:
            if isinstance(error, RateLimitError):
                self.rate.reject(monotonic(), call, retry_after=error.retry_after)
            elif attempt.reply is not None:
                self.rate.answer(monotonic(), call, tokens=attempt.reply.tokens)
            else:
                self.rate.drop(call)
            if headers := attempt.rate_limits:
                self.rate.told(monotonic(), headers)
            self._ended.notify(2)  # one that ended, and one more where the limit has grown
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


_UNITS = ("requests", "tokens", "input-tokens", "output-tokens")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def quotas(headers: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """What is left of each unit, and in how many seconds it is whole again.

    Reads the headers of OpenAI and those who follow it (`x-ratelimit-remaining-tokens`,
    `-reset-tokens: 1m3.5s`) and of Anthropic (`anthropic-ratelimit-tokens-remaining`, `-reset` as
    a date); what cannot be read is left out.
    """
    by_unit = {}
    for unit in _UNITS:
        for left, reset in (
            (f"x-ratelimit-remaining-{unit}", f"x-ratelimit-reset-{unit}"),
            (f"anthropic-ratelimit-{unit}-remaining", f"anthropic-ratelimit-{unit}-reset"),
        ):
            try:
                by_unit[unit] = (float(headers[left][0]), _seconds(headers[reset][0]))
            except (KeyError, IndexError, ValueError):
                continue
    return by_unit


def _seconds(text: str) -> float:
    """Seconds of `1h2m3.5s`, `20ms`, `59.7` or from now until a date; raises ValueError."""
    if "T" in text:
        when = datetime.fromisoformat(text)
        return max(0.0, (when - datetime.now(when.tzinfo)).total_seconds())
    if re.fullmatch(r"[\d.]{1,20}", text):
        return float(text)
    pieces = re.findall(r"([\d.]{1,20})(ms|[dhms])", text[:100])
    if "".join(number + unit for number, unit in pieces) != text.strip() or not pieces:
        raise ValueError(text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in pieces)
