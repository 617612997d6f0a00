"""What one call falls under: the limits of its command, its question's time, the process's stop.

A call takes its scope along from its start, so that a thread which outlives the command, asleep
between two attempts, is still held to the limits under which it began.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from ragbench import stopping
from ragbench.context import Deadline, current, use
from ragbench.lms.calls.refusal import QuestionTimeoutError, refuse
from ragbench.lms.calls.spend_limits import Amount, Reservation, Spent, active, reserve, settle


@dataclass(frozen=True)
class Scope:
    """The limits and the deadline of one call."""

    spent: tuple[Spent, ...] = ()
    deadline: Deadline | None = None

    @classmethod
    def current(cls) -> Scope:
        """That of a call which begins now."""
        return cls(active(), current().deadline)

    def over(self) -> bool:
        """Whether no further attempt may be made."""
        deadline = self.deadline
        late = deadline is not None and monotonic() > deadline.at
        return late or stopping.stopped() or any(one.stopped_by for one in self.spent)

    def check(self) -> None:
        """Do nothing if an attempt may be made.

        Raises:
            CallRefusedError: a limit or a stop forbids it, or the question's time is over.
        """
        if stopping.stopped():
            refuse("the command was stopped")
        for one in self.spent:
            if one.stopped_by:
                refuse(one.refusal())
        self.check_time()

    def check_time(self) -> None:
        """Do nothing while the question has time.

        Raises:
            QuestionTimeoutError: it is over.
        """
        if self.deadline is not None and monotonic() > self.deadline.at:
            raise QuestionTimeoutError(f"the question took longer than {self.deadline.seconds:g} s")

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, but not longer than a further attempt is allowed."""
        left = seconds if self.deadline is None else self.deadline.at - monotonic() + 0.001
        stopping.sleep(max(0.0, min(seconds, left)), self.over)

    def wait(self, condition: threading.Condition, seconds: float | None = None) -> None:
        """Wait on the held `condition`, which must be one of `stopping.wakes`.

        Raises:
            CallRefusedError: no attempt may be made any more.
        """
        self.check()
        if self.deadline is not None:
            left = self.deadline.at - monotonic() + 0.001
            seconds = left if seconds is None else min(seconds, left)
        condition.wait(seconds)
        self.check()

    @contextmanager
    def reserved(self, asked: Amount) -> Iterator[Reservation]:
        """Hold `asked` while a call is made inside the block, which says what the call took.

        A call that fails took one request and no tokens.

        Raises:
            LimitReachedError: the call would pass a limit.
        """
        reservation = reserve(self, asked)
        try:
            yield reservation
        finally:
            settle(self.spent, reservation)


@contextmanager
def reserved(asked: Amount) -> Iterator[Reservation]:
    """`Scope.reserved` for what begins now, such as a batch of calls."""
    with Scope.current().reserved(asked) as reservation:
        yield reservation


@contextmanager
def question_time() -> Iterator[None]:
    """Give the question that is answered inside the block the time that is set, if any is.

    When it is over, the next call is refused, and a call under way is broken off.
    """
    context = current()
    seconds = context.question_time_s
    deadline = None if seconds is None else Deadline(seconds, monotonic() + seconds)
    with use(replace(context, deadline=deadline)):
        yield
