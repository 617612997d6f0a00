"""Numbers that are known only to lie between two bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """A number of runs or calls that is known only to lie between two bounds."""

    low: int = 0
    high: int = 0

    @classmethod
    def exactly(cls, n: int) -> Range:
        """Return a number that is known."""
        return cls(n, n)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, low: int, high: int | None = None) -> Range:
        """Return the product with a number from `low` to `high`.

        Args:
            low: Smallest factor.
            high: Largest factor. None: `low`.
        """
        return Range(self.low * low, self.high * (low if high is None else high))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:,}"
        return f"{self.low:,} to {self.high:,}"
