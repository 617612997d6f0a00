"""Means as tables show them: each with half the width of its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence

from ragbench.experiments.records import StoredRecords
from ragbench.experiments.runs import headline_intervals
from ragbench.metrics import Interval


def mean_with_half(mean: float, interval: Interval | None) -> str:
    """A mean and half the width of its interval, as 0.412 ±0.051."""
    return f"{mean:.3f}{half(interval)}"


def with_intervals(cells: dict[str, str], records: StoredRecords) -> dict[str, str]:
    """`cells` of a row, where every headline mean has half the width of its 95 % interval."""
    for metric, interval in headline_intervals(records).items():
        cells[metric.upper()] += half(interval)
    return cells


def half(interval: Interval | Sequence[float] | None) -> str:
    """Half the width of an interval as it stands after a mean, such as " ±0.051"; blank of None."""
    if interval is None:
        return ""
    low, high = (interval.low, interval.high) if isinstance(interval, Interval) else interval
    return f" ±{(high - low) / 2:.3f}"
