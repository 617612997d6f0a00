"""A part of a report: a question, what was measured for it, in tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragbench.experiments.report.grid import Grid
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import Interval


@dataclass(frozen=True)
class Named:
    """A run and what it is called in the report."""

    label: str
    run: Evaluation


@dataclass(frozen=True)
class Titled:
    """A table with the name of its file, its heading and what must be known to read it."""

    name: str
    title: str
    grid: Grid
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One question with its tables; `lines` are what they come to."""

    name: str
    title: str
    lead: str
    tables: Sequence[Titled]
    lines: Sequence[str] = ()


def mean_cell(mean: float, interval: Interval | None) -> str:
    """A mean with its interval, as 0.412 [0.351, 0.473]."""
    if interval is None:
        return f"{mean:.3f}"
    return f"{mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def amount(value: float | None, name: str) -> str:
    """A mean of spending, with the digits that its measure has."""
    if value is None:
        return "unknown"
    if name == "cost_usd":
        return f"{value:.5f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
