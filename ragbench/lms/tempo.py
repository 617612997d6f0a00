"""How many calls a server takes: learnt from what it rejects and from its rate-limit headers.

No threads and no clock: times are passed in, in seconds of any one clock. `Pace` makes real calls
wait by it.

Both limits, calls open at once and calls started a second, are cut once per episode of rejections
to a little below what the server was taking, and grow along a cubic of the calls answered since:
fast while far below the last known limit, hardly at all near it, faster again beyond it (the shape
of CUBIC, RFC 9438, over calls instead of seconds). So it costs about one rejected call in a hundred
to keep looking for more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragbench.lms.rate_headers import quotas

START_WINDOW = 8
#: Answered calls beyond the plateau for which one more may be open.
WIDER = 20
#: Answered calls after which a limit is back where it was cut.
REACH = 80
#: But of no less than so many seconds.
REACH_S = 1.0
#: Share of the limit measured where it stays for most of the time, and how it grows from there.
#: All numbers here were found by simulation: `tests/lms/test_pace.py` and `benchmarks/pace.py`.
PLATEAU = 0.97
GROWTH = 0.3
LATELY_S = 3.0
#: Share of the measured limit that is kept at the first, second and any later cut in a row.
KEPT = (0.92, 0.7, 0.5)
#: Calls taken after a cut that show that it was deep enough; fewer do not make a rate.
SETTLED = 10
#: Rejections per episode beyond which the search for more gets no rarer.
COSTLY = 4
#: Cuts in a row without any effect after which up to such a share of rejections is put up with.
HASTY, CHANCE = 5, 0.1
#: Rejections, among the last ten calls or in the last episode, without which a cut is shallow.
MANY = 3
#: A measurement counts down to such a share of the limit that was in force.
TRUSTED = 0.85
FIRST_PAUSE_S = 0.2
#: Where no rate is known yet: calls came in a burst.
BURST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
#: Resets further away are not waited for: the server may say no by itself.
LONGEST_RESET_S = 120.0


@dataclass
class _Ceiling:
    """A limit after a cut: `top` is what was measured, `kept` the share left at the cut."""

    top: float
    kept: float
    reach: float  # answered calls after which the plateau is reached

    def at(self, answered: int) -> float:
        """The limit after so many more answered calls."""
        x = (answered - self.reach) / self.reach
        return self.top * (PLATEAU + (PLATEAU - self.kept if x < 0 else GROWTH) * x**3)


@dataclass
class _Quota:
    """What the server said is left of one unit, less what was sent since."""

    left: float
    until: float


@dataclass
class _Meter:
    """A fixed limit per minute, kept by spacing: `amount` takes `amount / per_minute` minutes."""

    per_minute: float
    free_at: float = 0.0

    def take(self, now: float, amount: float) -> None:
        self.free_at = max(self.free_at, now) + 60.0 * amount / self.per_minute

    def correct(self, amount: float) -> None:
        self.free_at += 60.0 * amount / self.per_minute


@dataclass(eq=False)
class Started:
    """A call under way; tokens are estimates until it ends."""

    at: float
    prompt_tokens: int = 0
    reply_tokens: int = 0
    among: int = 0  # calls open when it had started, itself included

    def need(self, unit: str) -> int:
        """What it takes of a quota's unit."""
        return {
            "requests": 1,
            "tokens": self.prompt_tokens + self.reply_tokens,
            "input-tokens": self.prompt_tokens,
            "output-tokens": self.reply_tokens,
        }[unit]


@dataclass
class Tempo:
    """The limits of one server as known so far; not safe to use from two threads at once."""

    open: set[Started] = field(default_factory=set)
    cuts: int = 0

    def __post_init__(self) -> None:
        self._slow_start = float(START_WINDOW)
        self._window: _Ceiling | None = None
        self._rate: _Ceiling | None = None
        self._answered = 0  # since the last cut, while limits made calls wait
        self._bound = False  # whether they did since the last answer
        self._cut_at = self._resume_at = float("-inf")
        self._next_at = float("-inf")
        self._in_a_row = 0  # cuts, each before the last one was seen to be deep enough
        self._in_vain = 0  # pauses in a row after which the first call was rejected again
        self._since_cut = 0  # calls started since
        self._taken: deque[Started] = deque(maxlen=256)  # the last calls not rejected so far
        self._burst, self._cost = 1, 1.0  # calls rejected in the last episode, and on average
        self._hasty = 0  # cuts in a row that came before the old limit was reached
        self._outcomes: deque[bool] = deque(maxlen=100)
        self._quotas: dict[str, _Quota] = {}
        self._meters: dict[str, _Meter] = {}

    def limit(self, unit: str, per_minute: float | None) -> None:
        """Keep a fixed limit on `requests` or `tokens` as well; of several the lowest counts."""
        known = self._meters.get(unit)
        if per_minute is not None and (known is None or per_minute < known.per_minute):
            self._meters[unit] = _Meter(per_minute)

    @property
    def window(self) -> int:
        """Calls that may be open at once."""
        if self._window is None:
            return int(self._slow_start)
        beyond = max(0.0, self._answered - self._window.reach)
        return max(1, int(self._window.at(self._answered) + beyond / WIDER))

    @property
    def rate(self) -> float | None:
        """Calls that may be started in a second; None until the server has rejected one."""
        return None if self._rate is None else self._rate.at(self._answered)

    def wait_s(self, now: float, call: Started) -> float | None:
        """Seconds until `call` may start, 0 for now; None: not before another one has ended."""
        if len(self.open) >= self.window:
            self._bound = True
            return None
        self._bound = self._bound or self._next_at > now
        times = [self._resume_at, self._next_at]
        times += [meter.free_at for meter in self._meters.values()]
        for unit, quota in list(self._quotas.items()):
            if now >= quota.until:
                del self._quotas[unit]
            elif quota.left < call.need(unit):
                times.append(quota.until)
        return max(0.0, max(times) - now)

    def start(self, now: float, call: Started) -> None:
        """Count `call` as started now."""
        self.open.add(call)
        call.at, call.among = now, len(self.open)
        self._taken.append(call)
        self._since_cut += 1
        if self._since_cut >= SETTLED:
            self._in_a_row = 0
        if rate := self.rate:
            # Some slack, so that a thread that wakes up late loses nothing.
            self._next_at = max(self._next_at, now - 1 / rate) + 1 / rate
        for unit, meter in self._meters.items():
            meter.take(now, call.need(unit))
        for unit, quota in self._quotas.items():
            quota.left -= call.need(unit)

    def answer(self, call: Started, *, tokens: int | None = None, busy: bool = True) -> None:
        """`call` got an answer of `tokens`; `busy` if others are waiting."""
        self.open.discard(call)
        self._outcomes.append(True)
        if tokens is not None and "tokens" in self._meters:
            self._meters["tokens"].correct(tokens - call.need("tokens"))
        if not (busy and self._bound):
            return
        self._bound = False
        if self._window is None:
            self._slow_start += 1 if not self.cuts else 0.25 / self._slow_start
        else:
            self._answered += 1

    def drop(self, call: Started) -> None:
        """`call` ended in a way that says nothing about the server's limits."""
        self.open.discard(call)

    def reject(self, now: float, call: Started, *, retry_after: float | None = None) -> None:
        """The server said 429 to `call`: a new episode, unless `call` belongs to the last one."""
        self.open.discard(call)
        if call in self._taken:
            self._taken.remove(call)
        if retry_after is not None:
            pause = min(max(retry_after, 0.0), LONGEST_RESET_S)
            self._resume_at = max(self._resume_at, now + pause)
        self._outcomes.append(False)
        if call.at <= self._cut_at:
            self._burst += 1
        elif not self._by_chance():
            self._cut(now, told=retry_after is not None)

    def told(self, now: float, headers: Mapping[str, Sequence[str]]) -> None:
        """Take in the rate-limit headers of a reply: what is left, and when it is whole again."""
        for unit, (left, reset_s) in quotas(headers).items():
            if reset_s > LONGEST_RESET_S:
                self._quotas.pop(unit, None)
                continue
            # The server may not have counted the calls that are still open.
            sent = sum(call.need(unit) for call in self.open)
            self._quotas[unit] = _Quota(left - sent, now + reset_s)

    def _by_chance(self) -> bool:
        """Whether the server seems to reject a few calls whatever their rate: cuts did not help."""
        share = self._outcomes.count(False) / len(self._outcomes)
        return self._hasty >= HASTY and share <= CHANCE

    def _cut(self, now: float, *, told: bool) -> None:
        many = max(list(self._outcomes)[-SETTLED:].count(False), self._burst) >= MANY
        if not many:  # others were answered
            self._in_a_row = 0
        alone = self._since_cut <= 1  # the first call after a pause, so that was too short
        self._in_vain = self._in_vain + 1 if alone else 0
        if not told:
            first = BURST_PAUSE_S if many and self._rate is None else FIRST_PAUSE_S
            pause = min(first * 2.0**self._in_vain, LONGEST_PAUSE_S)
            self._resume_at = max(self._resume_at, now + pause)
        # One rejection says nothing of rates yet, nor does one that came right after a pause.
        if many if self._rate is None else not alone:
            self._lower(now)
        self._answered, self._since_cut, self._burst = 0, 0, 1
        self._cut_at, self._next_at = now, self._resume_at
        self._in_a_row += 1
        self.cuts += 1

    def _lower(self, now: float) -> None:
        """Set both limits to less than what the server was seen to take."""
        top = self._measured(now)
        if top is None:
            self._slow_start = max(1.0, self._slow_start / 2)
            return
        if self._rate is not None:
            # Few calls may have been measured because they were made to wait, not rejected.
            rate = self._rate.at(self._answered)
            top = min(rate, max(top, TRUSTED * rate))
            if self._answered < self._rate.reach:
                top *= PLATEAU  # not even the old limit was kept
        self._hasty = self._hasty + 1 if self._answered < REACH else 0
        # Where many are rejected before the first of them is known, limits are tried less often.
        self._cost += 0.3 * (min(self._burst, COSTLY) - self._cost)
        reach = max(REACH * self._cost, REACH_S * top) / 2 ** min(self._in_a_row, 2)
        kept = KEPT[min(self._in_a_row, len(KEPT) - 1)]
        most = max(call.among for call in self._taken)
        self._window = _Ceiling(float(min(self.window, most)), kept, reach)
        self._rate = _Ceiling(top, kept, reach)

    def _measured(self, now: float) -> float | None:
        """Calls a second that the server took: the most in a second lately, or in the last few.

        None while there were too few to tell.
        """
        starts = [call.at for call in self._taken if call.at > now - LATELY_S]
        if len(starts) < SETTLED:
            starts = [call.at for call in self._taken][-SETTLED:]
            return len(starts) / max(now - starts[0], 1.0) if len(starts) == SETTLED else None
        most = first = 0
        for last, at in enumerate(starts):
            while starts[first] <= at - 1.0:
                first += 1
            most = max(most, last - first + 1)
        return float(most)
