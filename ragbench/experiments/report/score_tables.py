"""Tables of a scored run beside its metrics: what the score cost, and when gold was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from ragbench.experiments.report.means import mean_with_half
from ragbench.experiments.report.tables import plain
from ragbench.metrics import (
    cluster_of,
    mean_interval,
    under_curve,
    usable_clusters,
    within_budget,
)

if TYPE_CHECKING:
    from ragbench.experiments.score import Scored

#: Shares of the dearest question's spending at which accuracy is shown.
SHARES = (0.25, 0.5, 0.75, 1.0)
_EFFICIENCY = {
    "per_retrieval": "F1 per search",
    "per_1000_tokens": "F1 per 1,000 tokens",
    "per_usd": "F1 per $",
    "per_second": "F1 per second",
}
_RESOURCES = {"calls": "calls", "tokens": "tokens", "cost_usd": "cost $", "latency_s": "latency s"}


def efficiency_table(runs: Sequence[Scored]) -> Table:
    """The summed F1 over what was spent, a column per run; "-" where nothing was, or is unknown."""
    table = Table(box=box.MARKDOWN)
    table.add_column("efficiency", no_wrap=True)
    for run in runs:
        table.add_column(plain(run.folder.name), justify="right", no_wrap=True)
    for name, words in _EFFICIENCY.items():
        cells = [run.summary["efficiency"].get(name) for run in runs]
        table.add_row(words, *("-" if cell is None else f"{cell:.4g}" for cell in cells))
    for name in ("latency_s",):
        for point in ("p50", "p95"):
            cells = [run.summary[name].get(point) for run in runs]
            shown = ("-" if cell is None else f"{cell:.2f}" for cell in cells)
            table.add_row(f"latency {point} s", *shown)
    return table


def budget_table(runs: Sequence[Scored]) -> Table:
    """Exact match over all questions when only answers within a budget count, and its area.

    Each with half the width of its 95 % interval, of which the budgets' own uncertainty is no part.
    The budgets are shares of the dearest question of all `runs`, so that the columns compare.
    """
    table = Table(box=box.MARKDOWN)
    for name in ("run", "accuracy at", *(f"{share:.0%}" for share in SHARES), "of", "area"):
        left = name in ("run", "accuracy at")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for name, words in _RESOURCES.items():
        curves = [run.summary["budgets"].get(name) for run in runs]
        limit = max((curve["limit"] for curve in curves if curve), default=0.0)
        for run, curve in zip(runs, curves, strict=True):
            if curve:
                within = (within_budget(run.records, name, share * limit) for share in SHARES)
                cells = [_mean(run, scores) for scores in within]
                area = _mean(run, under_curve(run.records, name, limit))
                row = (run.folder.name, words, *cells, f"{limit:.4g}", area)
                table.add_row(*map(plain, row))
    return table


def gold_table(runs: Sequence[Scored]) -> Table | None:
    """Of each gold passage, in the data's order, by which search it was first found; None if none.

    Shares are of the questions that have such a passage.
    """
    by_run = [(run, run.summary.get("gold_by_search") or {}) for run in runs]
    numbers = {int(n) for _, rows in by_run for row in rows.values() for n in row if n != "never"}
    if not any(rows for _, rows in by_run):
        return None
    last = min(max(numbers, default=1), 6)
    table = Table(box=box.MARKDOWN)
    heads = [f"search {n}" for n in range(1, last + 1)]
    later = [f"after {last}"] if max(numbers, default=0) > last else []
    for name in ("run", "gold passage", "n", *heads, *later, "never"):
        left = name in ("run", "gold passage")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for run, rows in by_run:
        for place, row in rows.items():
            counts = [row.get(str(n), 0) for n in range(1, last + 1)]
            if later:
                counts.append(sum(n for k, n in row.items() if k != "never" and int(k) > last))
            counts.append(row.get("never", 0))
            n = sum(row.values())
            shares = (f"{count / n:.0%}" for count in counts)
            table.add_row(*map(plain, (run.folder.name, place, n, *shares)))
    return table


def _mean(run: Scored, scores: Sequence[float]) -> str:
    """The mean of scores in [0, 1], one of each record of `run`, with half its interval."""
    clusters = usable_clusters([cluster_of(record) for record in run.records])
    mean = sum(scores) / len(scores)
    return mean_with_half(mean, mean_interval(scores, (0.0, 1.0), clusters))
