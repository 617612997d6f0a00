"""The limits on one question."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


class BudgetSpentError(Exception):
    """A limit of the question's budget is reached; `forward` turns it into a forced answer."""


@dataclass
class Budget:
    """Limits on one question; one call is always kept back for the forced answer."""

    max_calls: int
    max_retrievals: int
    calls: int = 0
    retrievals: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend_call(self, *, last: bool = False) -> None:
        """Count one LM call; only `last` may use the one kept back.

        Raises:
            BudgetSpentError: the limit is reached.
        """
        with self._lock:
            if self.calls + (not last) >= self.max_calls:
                raise BudgetSpentError("LM calls")
            self.calls += 1

    def give_call_back(self) -> None:
        """Undo one `spend_call`: the LM refused the call, so nothing was said or billed."""
        with self._lock:
            self.calls -= 1

    def spend_retrievals(self, n: int) -> None:
        """Count `n` searches.

        Raises:
            BudgetSpentError: the limit would be passed.
        """
        with self._lock:
            if self.retrievals + n > self.max_retrievals:
                raise BudgetSpentError("searches")
            self.retrievals += n

    @property
    def calls_left(self) -> int:
        """LM calls left beside the one kept back."""
        return self.max_calls - 1 - self.calls
