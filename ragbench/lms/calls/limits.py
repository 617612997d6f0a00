"""Limits on a command's spending and a question's time, for every call of the process.

Before a call is sent, its maximum usage (the estimated prompt and the reply limit) is reserved, in
addition to the amount spent and the reservations of other running calls. If the call would fit once
running calls turn out cheaper, it waits for them. If it can never fit, it is refused, and so is
every later call. The actual usage of a call replaces its reservation. A command can exceed a limit
only by the error of its prompt estimates. A call keeps the limits under which it began, even after
their block has ended (`Scope`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from dspy import LMError

from ragbench.context import POLL_S, Deadline, current, sleep_until, stopped, use
from ragbench.errors import ConfigError, RagbenchError, StoppedError
from ragbench.ledger import current_ledger
from ragbench.record import Call, FailedAttempts, billed, was_sent

Value = TypeVar("Value")

#: Assumed token limit of a reply if the request states none. Minimum limit of reasoning models.
UNBOUNDED_REPLY = 16_000
#: Fix if the user can give the price of an LM.
GIVE_PRICE = "--price in=0.15,out=0.60 (US dollars per million tokens), or "


class CallRefusedError(LMError):
    """Error of a refused call. Nothing was sent."""

    default_code = "refused"


class LimitReachedError(CallRefusedError):
    """A limit of the command, an LM that is down or a stop refused the call."""


class QuestionTimeoutError(CallRefusedError):
    """Error of a question whose time limit has passed."""


def refuse(why: str) -> NoReturn:
    """Refuse a call, so that its question counts as cut off and not as failed."""
    if (ledger := current_ledger()) is not None:
        ledger.refused = True
    raise LimitReachedError(why)


@dataclass(frozen=True)
class Limits:
    """Spending limits of a command. None for no limit.

    `cost` is in US dollars, `tokens` counts prompt and reply tokens, and `calls` counts sent
    requests, including retries. `minutes` is the time of this process.
    """

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name, most in vars(self).items():
            if most is not None and (type(most) not in (int, float) or most != most):
                # NaN would limit nothing.
                raise ConfigError(f"Invalid limit {name}={most!r}. Use a number.")

    def __bool__(self) -> bool:
        return self != Limits()

    def option(self, name: str) -> str:
        """Return the limit called `name` in its command-line form."""
        flag = "total-tokens" if name == "tokens" else name
        return f"--max-{flag} {getattr(self, name):g}"


@dataclass(frozen=True)
class Amount:
    """Spending of one or more requests, or its upper bound. An unknown cost is infinite."""

    calls: int = 1
    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)


_NOTHING = Amount(calls=0)
_ROUNDING = 1e-9  # rounding error of sums of dollars
#: Guards all usage. It is notified when a call ends.
_turn = threading.Condition()
#: The blocks that are open in this process, for threads that carry no context.
_open: tuple[RequestUsage, ...] = ()


@dataclass
class RequestUsage:
    """The amounts spent under `limits`, and the limit that ended them. See `spending`."""

    limits: Limits
    total: Amount = _NOTHING
    #: The limit that was reached, in its command-line form, or the server that is down. None
    #: otherwise.
    stopped_by: str | None = None
    #: Error that ends the block if an LM that is down stopped it, not a limit.
    error: RagbenchError | None = None
    under_way: list[Reservation] = field(default_factory=list, repr=False)
    _start: float = field(default_factory=time.monotonic)

    def count(self, calls: Iterable[Call]) -> None:
        """Count what earlier processes spent: the `calls` that were sent to a server."""
        with _turn:
            for call in filter(was_sent, calls):
                spent = billed([call])
                cost = math.inf
                if spent.cost_usd is not None and spent.possible_usd is not None:
                    cost = spent.cost_usd + spent.possible_usd
                tokens = spent.all_tokens + spent.possible_tokens
                self.total += Amount(call.attempts, tokens, cost)

    def words(self) -> str:
        cost = "an unknown cost"
        if math.isfinite(self.total.cost):
            cost = f"${self.total.cost:.4f}"
        return f"{self.total.calls:,} calls, {self.total.tokens:,} tokens, {cost}"

    def refusal(self, amount: Amount = _NOTHING) -> str:
        """Return why a call is refused after the spending stopped."""
        if self.error is not None:
            return str(self.error)
        need = ""
        if amount.tokens:
            need = f", and this call may take {amount.tokens:,} tokens"
        return f"{self.stopped_by} is reached: {self.words()} were spent{need}"

    def seconds_left(self) -> float:
        """Return the remaining seconds. Infinite without a time limit."""
        if self.limits.minutes is None:
            return math.inf
        return self._start + 60 * self.limits.minutes - time.monotonic()

    def has_room(self, amount: Amount) -> bool:
        """Return True if `amount` fits in addition to the reservations of running calls.

        Notes the limit that it would pass if they came to nothing.
        """
        if self.limits.minutes is not None and not self.stopped_by and self.seconds_left() <= 0:
            self.stopped_by = self.limits.option("minutes")
        fits = True
        for name, unspent, held in self.left():
            need = getattr(amount, name)
            fits = fits and need + held <= unspent + _ROUNDING
            if not self.stopped_by and need > unspent + _ROUNDING:
                self.stopped_by = self.limits.option(name)
        return fits

    def left(self) -> Iterator[tuple[str, float, float]]:
        """Yield the name of each limit, its unspent amount, and the reserved amount."""
        for name in ("cost", "tokens", "calls"):
            if (limit := getattr(self.limits, name)) is not None:
                held = sum(getattr(reservation.reserved, name) for reservation in self.under_way)
                yield name, limit - getattr(self.total, name), held


@dataclass(eq=False)
class Reservation:
    """The upper bound on the usage of a call or batch, replaced by its actual usage."""

    reserved: Amount
    taken: Amount = Amount()

    def take(self, *, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Record the usage of the call. An unknown cost counts as the reserved amount.

        Args:
            tokens: Tokens of prompt and reply.
            cost: Cost in US dollars. None if unknown.
            calls: Number of requests.
        """
        self.taken = Amount(calls, tokens, self.reserved.cost if cost is None else cost)


class _Active(tuple[RequestUsage, ...]):
    """The blocks around the calls of a context, the innermost last."""


def active() -> tuple[RequestUsage, ...]:
    """Return the limits that a call falls under which begins now, the innermost last."""
    inner = current().get(_Active)
    if inner is None:
        return _open
    return inner


@contextmanager
def spending(limits: Limits) -> Iterator[RequestUsage]:
    """Keep `limits` over all calls that are made inside the block, which may end by `stop`."""
    global _open
    spent = RequestUsage(limits)
    around = _Active((*active(), spent))
    with _turn:
        _open = (*_open, spent)
    try:
        with use(current().plus(around)):
            yield spent
    except StoppedError:
        if spent.error is not None:  # a larger limit would not help
            raise spent.error from None
        raise
    finally:
        with _turn:
            _open = tuple(opened for opened in _open if opened is not spent)
            _turn.notify_all()
    if spent.error is not None:
        raise spent.error


def limit_reached() -> str | None:
    """Return the limit reached, as given on the command line. None if there is none."""
    with _turn:
        for spent in active():
            spent.has_room(Amount(1, 1, 2 * _ROUNDING))
            if spent.stopped_by:
                return spent.stopped_by
    return None


def check_limits() -> None:
    """Raise StoppedError if a limit lets nothing more be begun."""
    limit = limit_reached()
    if limit is not None:
        raise StoppedError(limit)


def stop(error: RagbenchError, *, by: str, spent: Sequence[RequestUsage] | None = None) -> None:
    """Refuse new calls in the innermost block of `spent`, which ends with `error`.

    Args:
        error: Error that ends the block.
        by: The server that caused the stop, shown in tables.
        spent: Blocks of the call. None for the current ones.
    """
    with _turn:
        for block in (active() if spent is None else spent)[-1:]:
            if not block.stopped_by:
                block.stopped_by = by
                block.error = error
        _turn.notify_all()


def wait_for_calls() -> None:
    """Wait until no call is running."""
    with _turn:
        while any(spent.under_way for spent in active()):
            _turn.wait(1.0)


def room() -> Amount:
    """Return the unspent amount without reservations. It is infinite without limits."""
    rooms = {"calls": math.inf, "tokens": math.inf, "cost": math.inf}
    with _turn:
        for block in active():
            for name, unspent, held in block.left():
                rooms[name] = min(rooms[name], unspent - held)
    return Amount(**rooms)  # type: ignore[arg-type]  # infinity is a float


@dataclass(frozen=True)
class Scope:
    """Scope of one call: the limits of its command, its question's time, and the stop.

    A call takes its scope along from its start, so that a thread which outlives the command, asleep
    between two attempts, is still held to the limits under which it began.
    """

    spent: tuple[RequestUsage, ...] = ()
    deadline: Deadline | None = None

    @classmethod
    def current(cls) -> Scope:
        """Return the scope of a call that begins now."""
        return cls(active(), current().deadline)

    def over(self) -> bool:
        """Return True if no further attempt may be made."""
        return self._late() or stopped() or any(block.stopped_by for block in self.spent)

    def check(self) -> None:
        """Raise CallRefusedError if a limit, a stop or the question's time forbids an attempt."""
        if stopped():
            refuse("the command was stopped")
        for block in self.spent:
            if block.stopped_by:
                refuse(block.refusal())
        self.check_time()

    def check_time(self) -> None:
        """Raise QuestionTimeoutError if the question's time limit has passed."""
        if self.deadline is not None and self._late():
            raise QuestionTimeoutError(f"the question took longer than {self.deadline.seconds:g} s")

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, but not longer than a further attempt is allowed."""
        if self.deadline is not None:
            seconds = min(seconds, self.deadline.at - time.monotonic() + 0.001)
        sleep_until(max(0.0, seconds), self.over)

    def wait(self, condition: threading.Condition, seconds: float = math.inf) -> None:
        """Wait a moment on the held `condition`, unless `check` raises. The caller loops.

        Args:
            condition: Condition that the calling thread holds.
            seconds: Maximum time to wait.
        """
        self.check()
        condition.wait(max(0.0, min(seconds, POLL_S)))
        self.check()

    @contextmanager
    def reserved(self, amount: Amount) -> Iterator[Reservation]:
        """Reserve `amount` for a call inside the block, which reports the usage of the call.

        The call waits while running calls leave no budget. A failed call counts as one request
        without tokens.

        Raises:
            LimitReachedError: The call would exceed a limit.
        """
        reservation = Reservation(amount)
        with _turn:
            while True:
                self.check()
                fits = True
                for block in self.spent:
                    fits = block.has_room(amount) and fits
                    if block.stopped_by:
                        _turn.notify_all()  # waiting calls are refused too
                        refuse(block.refusal(amount))
                if fits:
                    break
                _turn.wait(POLL_S)
            for block in self.spent:
                block.under_way.append(reservation)
        try:
            yield reservation
        finally:
            with _turn:
                for block in self.spent:
                    block.under_way.remove(reservation)
                    block.total += reservation.taken
                _turn.notify_all()

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline.at


@dataclass(eq=False)
class Reply(Generic[Value]):
    """A server's reply as the caller reads it, and its usage. An unknown cost is None.

    `Caller.call` sets the number of attempts, the latency in seconds with retries and waits, and
    the known billed usage of the failed attempts.
    """

    value: Value
    tokens: int
    cost_usd: float | None
    attempts: int = 1
    latency_s: float = 0.0
    failed: FailedAttempts | None = None


@dataclass(eq=False)
class Attempt:
    """One attempt at a call. Its reply or error is set when it has ended."""

    prompt: int  # a hash, which tells prompts apart
    tokens: int  # estimated tokens of prompt and reply
    scope: Scope
    reply: Reply[Any] | None = None
    error: Exception | None = None  # an `LM15Error` has `retry_after`


@dataclass(frozen=True)
class QuestionTime:
    """Part of the context of a run: the seconds that each question may take. None for no limit."""

    seconds: float | None


def question_deadline() -> Deadline | None:
    """Return when the time of a question that starts now is over, or None without a limit.

    After the limit, the next call is refused, and a running call is aborted.
    """
    limit = current().get(QuestionTime)
    if limit is None or limit.seconds is None:
        return None
    return Deadline(limit.seconds, time.monotonic() + limit.seconds)


def check_price(model: str, *, priced: bool, cure: str = "") -> None:
    """Raise ConfigError if a limit on cost is to be kept over a model without a price.

    Args:
        model: Model of the calls, for the message.
        priced: True if the price of the model is known.
        cure: Fix that the user can apply to this model, for the message.
    """
    for block in active():
        if block.limits.cost is not None and not priced:
            raise ConfigError(
                f"no price is known for {model}, so {block.limits.option('cost')} cannot be kept; "
                f"give {cure}--max-total-tokens or --max-calls instead"
            )


@dataclass
class Unmetered:
    """Part of the context of a run: the model of the first call that bypassed ragbench, if any."""

    model: str = ""


def keeps_limits() -> bool:
    """Return True if a limit on cost, tokens or calls holds now."""
    limits = [spent.limits for spent in active()]
    return any((entry.cost, entry.tokens, entry.calls) != (None, None, None) for entry in limits)


def unmetered_reason() -> str:
    """Return why a limit cannot be kept, because a call bypassed ragbench. "" if it can."""
    call = current().get(Unmetered)
    if call is None or not call.model or not keeps_limits():
        return ""
    return (
        f"a call of {call.model} is not metered, so no limit can be kept; set that LM on a "
        "predictor, keep it as an attribute of the module, or leave --max-... out"
    )
