"""Limits on what a command spends, kept over every call of the process.

    with spending(Limits(cost=1.0)) as spent:
        ...  # whatever asks a model, in whatever thread

Before a call is sent, what it may take at the most (its prompt, estimated, and its reply's limit)
is reserved beside what was spent and what other calls under way may still take. A call that would
fit if those under way turned out cheaper waits for them; one that would not fit is refused, and
after the first refusal every call is. What a call really took replaces its reservation. So the
limit is passed by no more than what the estimates of the prompts under way were short of. A call
is held to the limits under which it began, also after their block has ended (`Scope`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Protocol

from ragbench import stopping
from ragbench.context import current, use
from ragbench.errors import ConfigError, RagbenchError, StoppedError
from ragbench.lms.calls.refusal import refuse
from ragbench.record import Call, billed, was_sent


@dataclass(frozen=True)
class Limits:
    """What a command may spend; None for no limit.

    `cost` is in US dollars, `tokens` counts those of prompts and replies, `calls` requests sent,
    so a retry is one; `minutes` are of this process.
    """

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None
    minutes: float | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) is not None for f in fields(self))

    def option(self, name: str) -> str:
        """The limit called `name` as it is given on the command line."""
        flag = "total-tokens" if name == "tokens" else name
        return f"--max-{flag} {getattr(self, name):g}"


@dataclass(frozen=True)
class Amount:
    """Spending of one or more requests, or its upper bound; an unknown cost is infinite."""

    calls: int = 1
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)


#: The cure where the price of an LM can be given.
GIVE_PRICE = "--price in=0.15,out=0.60 (US dollars per million tokens), or "

_NOTHING = Amount(calls=0)
_ROUNDING = 1e-9  # of sums of dollars

#: Guards all that is spent; told of whenever a call ends.
_turn = stopping.wakes(threading.Condition())
#: The blocks that are open in this process, for threads that carry no context.
_open: tuple[Spent, ...] = ()


@dataclass
class Spent:
    """What was spent under `limits`, and which of them ended it; see `spending`."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    total: Amount = _NOTHING
    #: The limit that was reached, as given on the command line, or the server that is down for
    #: good; blank while neither is.
    stopped_by: str = ""
    #: What the block ends with where no limit but an LM that is down stopped it.
    error: RagbenchError | None = None
    #: Whether the block has ended: threads that outlive it begin nothing more.
    closed: bool = False
    _under_way: list[Reservation] = field(default_factory=list, repr=False)
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def count(self, calls: Iterable[Call]) -> None:
        """Count what earlier processes spent: the `calls` that were sent to a server."""
        with _turn:
            for call in filter(was_sent, calls):
                took = billed([call])
                cost = math.inf if took.cost_usd is None else took.cost_usd
                self.total += Amount(call.attempts, took.tokens, cost)

    def words(self) -> str:
        """The spending in words."""
        cost = f"${self.total.cost:.4f}" if math.isfinite(self.total.cost) else "an unknown cost"
        return f"{self.total.calls:,} calls, {self.total.tokens:,} tokens, {cost}"

    @property
    def ended(self) -> bool:
        """Whether a limit was reached, an LM went down or the block has ended."""
        return self.closed or bool(self.stopped_by)

    def refusal(self, asked: Amount = _NOTHING) -> str:
        """Why a call is refused, once `ended`."""
        if self.error is not None:
            return str(self.error)
        why = f"{self.stopped_by} is reached" if self.stopped_by else "the command has ended"
        more = f", and this call may take {asked.tokens:,} tokens" if asked.tokens else ""
        return f"{why}: {self.words()} were spent{more}"

    def exhausted(self) -> bool:
        """Whether nothing more may be begun."""
        with _turn:
            self._look(Amount(), least=True)
            return bool(self.stopped_by)

    def _look(self, asked: Amount, *, least: bool = False) -> None:
        """Note the limit that `asked` would pass if the calls under way came to nothing.

        `least`: only if nothing at all is left of it.
        """
        if self.stopped_by:
            return
        if self.limits.minutes is not None and self.seconds_left() <= 0:
            self.stopped_by = self.limits.option("minutes")
        for name, limit, spent, more in self._rows(asked):
            if spent >= limit if least else spent + more > limit + _ROUNDING:
                self.stopped_by = self.stopped_by or self.limits.option(name)

    def _has_room(self, asked: Amount) -> bool:
        rows = self._rows(asked + self._reserved())
        return all(spent + more <= limit + _ROUNDING for _, limit, spent, more in rows)

    def _reserved(self) -> Amount:
        return sum((one.reserved for one in self._under_way), _NOTHING)

    def _rows(self, more: Amount) -> Iterator[tuple[str, float, float, float]]:
        for name in ("cost", "tokens", "calls"):
            limit = getattr(self.limits, name)
            if limit is not None:
                yield name, limit, getattr(self.total, name), getattr(more, name)

    def seconds_left(self) -> float:
        """Seconds until the time is over; infinite without such a limit."""
        if self.limits.minutes is None:
            return float("inf")
        return self._start + 60 * self.limits.minutes - self.clock()


@dataclass(eq=False)
class Reservation:
    """The upper bound on what a call or batch may spend, replaced by what it did spend."""

    reserved: Amount
    taken: Amount = Amount()

    def take(self, *, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Say what the call took; a cost that is not known counts as what was reserved."""
        self.taken = Amount(calls, tokens, self.reserved.cost if cost is None else cost)


@dataclass(frozen=True)
class _Active:
    """The blocks around the calls of a context, the innermost last."""

    spent: tuple[Spent, ...]


def active() -> tuple[Spent, ...]:
    """The limits that a call falls under which begins now, the innermost last."""
    inner = current().get(_Active)
    return _open if inner is None else inner.spent


@contextmanager
def spending(limits: Limits) -> Iterator[Spent]:
    """Keep `limits` over all calls of the process that are made inside the block.

    Raises:
        RagbenchError: an LM that the block used is down for good; see `stop`.
    """
    global _open
    spent = Spent(limits)
    around = (*active(), spent)
    with _turn:
        _open = (*_open, spent)
    try:
        with use(current().plus(_Active(around))):
            yield spent
    except StoppedError as stop:
        if spent.error is not None:  # no larger limit would help
            spent.error.partial = stop.partial
            raise spent.error from None
        raise
    finally:
        with _turn:
            _open = tuple(one for one in _open if one is not spent)
            spent.closed = True
        stopping.wake_all()
    if spent.error is not None:
        raise spent.error


def stopped_by() -> str:
    """The limit that lets nothing more be begun, as given on the command line; blank for none."""
    return next((spent.stopped_by for spent in active() if spent.exhausted()), "")


def stop(error: RagbenchError, *, by: str, spent: Sequence[Spent] | None = None) -> None:
    """Let nothing more be begun in the innermost block of `spent`, which ends with `error`.

    `by` names the server that is to blame: what a table of what there is says it was stopped by.
    """
    innermost = (active() if spent is None else spent)[-1:]
    with _turn:
        for one in innermost:
            if not one.stopped_by:
                one.stopped_by, one.error = by, error
    stopping.wake_all()


def wait_for_calls() -> None:
    """Return when no call is under way any more."""
    with _turn:
        while any(spent._under_way for spent in active()):
            _turn.wait(1.0)


def room() -> Amount:
    """The amount that may still be spent and is not reserved; infinite without limits."""
    with _turn:
        rows = [row for spent in active() for row in spent._rows(spent._reserved())]
    left = {
        name: min(
            (limit - spent - held for n, limit, spent, held in rows if n == name), default=math.inf
        )
        for name in ("calls", "tokens", "cost")
    }
    return Amount(**left)  # type: ignore[arg-type]  # infinity is a float


class Held(Protocol):
    """What `reserve` needs to know of a call: see `Scope`."""

    @property
    def spent(self) -> tuple[Spent, ...]:
        """The limits that it falls under."""

    def check(self) -> None:
        """Raise if it must not be made."""


def reserve(call: Held, asked: Amount) -> Reservation:
    """Hold `asked` under the limits of `call`, when those under way leave room for it.

    Raises:
        CallRefusedError: the call would pass a limit, or must not be made.
    """
    with _turn:
        while True:
            call.check()
            for one in call.spent:
                one._look(asked)
                if one.stopped_by:
                    stopping.wake_all()  # whoever waits is refused too
                    refuse(one.refusal(asked))
            if all(one._has_room(asked) for one in call.spent):
                made = Reservation(asked)
                for one in call.spent:
                    one._under_way.append(made)
                return made
            _turn.wait(min([1.0, *(max(one.seconds_left(), 0.0) for one in call.spent)]))


def settle(spent: Sequence[Spent], made: Reservation) -> None:
    """Put what the call took in the place of what was reserved."""
    with _turn:
        for one in spent:
            one._under_way.remove(made)
            one.total += made.taken
        if spent:
            _turn.notify_all()


def replies_are_limited() -> bool:
    """Whether a limit is to be kept now that a long reply could pass."""
    limits = [spent.limits for spent in active()]
    return any(one.cost is not None or one.tokens is not None for one in limits)


def cost_is_limited() -> bool:
    """Whether a limit on cost is to be kept now."""
    return bool(_cost_limits())


def _cost_limits() -> list[Limits]:
    return [spent.limits for spent in active() if spent.limits.cost is not None]


def check_price(model: str, *, known: bool, cure: str = "") -> None:
    """Do nothing unless a limit on cost is to be kept over a model without a price.

    Raises:
        ConfigError: it is.
    """
    if known:
        return
    for limits in _cost_limits():
        raise ConfigError(
            f"no price is known for {model}, so {limits.option('cost')} cannot be kept; give "
            f"{cure}--max-total-tokens or --max-calls instead"
        )
