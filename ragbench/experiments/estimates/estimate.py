"""An estimate: what something is expected to spend, with a range, before it spends anything."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from ragbench.ranges import Range


class Estimate(BaseModel):
    """What is expected, if no reply is cached; `cost` in US dollars, None where not known."""

    model_config = ConfigDict(frozen=True)

    title: str
    calls: Range = Range()
    tokens: Range = Range()
    cost: tuple[float, float] | None = (0.0, 0.0)
    notes: tuple[str, ...] = ()
    questions: int = 0
    #: Of the program's own index, which comes in addition and is no question's.
    index: Estimate | None = None

    def lines(self) -> list[str]:
        """The estimate for people."""
        lines = [
            self.title,
            f"  calls   {self.calls}",
            f"  tokens  {self.tokens}",
            f"  cost    {self._cost}",
            *(f"  {note}" for note in self.notes),
        ]
        if self.index is not None:
            index = self.index
            parts = (f"{index.calls} calls", f"{index.tokens} tokens", index._cost, *index.notes)
            lines.append(f"  {index.title}: {', '.join(parts)}")
        return lines

    @property
    def _cost(self) -> str:
        if self.cost is None:
            return "unknown: no price is known for an LM; give --price"
        return f"{usd(self.cost[0])} to {usd(self.cost[1])}" if self.cost[1] else "$0"

    def holds(self, *, calls: int, tokens: int, cost: float | None) -> bool:
        """Whether what was spent lies within the range."""
        inside = self.calls.low <= calls <= self.calls.high
        inside = inside and self.tokens.low <= tokens <= self.tokens.high
        if self.cost is None or cost is None:
            return inside
        return inside and self.cost[0] <= cost <= self.cost[1]


def in_all(title: str, parts: Sequence[Estimate], notes: Sequence[str] = ()) -> Estimate:
    """The sum of what `parts` are expected to spend; the cost None where one is not known."""
    costs = [part.cost for part in parts if part.cost is not None]
    low, high = (sum(cost[end] for cost in costs) for end in (0, 1))
    return Estimate(
        title=title,
        calls=sum((part.calls for part in parts), Range()),
        tokens=sum((part.tokens for part in parts), Range()),
        cost=(low, high) if len(costs) == len(parts) else None,
        notes=tuple(notes),
    )


def usd(amount: float) -> str:
    """`amount` US dollars, with more digits where it is small."""
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.4f}"


def duration(seconds: float) -> str:
    """`seconds` in the unit that a person would choose."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
