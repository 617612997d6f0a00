"""A compiled program on other LMs and data, as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from ragbench.experiments.compare import Cell
from ragbench.experiments.report.comparison import shown_interval
from ragbench.experiments.report.means import mean_with_half
from ragbench.experiments.report.tables import console, plain, print_table


def print_matrix(cells: Sequence[Cell]) -> None:
    """Print one table per metric, LMs down and data across, and each cell's verdict in words."""
    out = console()
    data = list(dict.fromkeys(cell.data for cell in cells))
    for metric in cells[0].scores:
        table = Table(box=box.MARKDOWN)
        table.add_column(f"{metric}: compiled (against zero-shot)")
        for name in data:
            table.add_column(plain(name), justify="right")
        for lm in dict.fromkeys(cell.lm for cell in cells):
            row = {cell.data: cell for cell in cells if cell.lm == lm}
            table.add_row(plain(lm), *(_shown(row[name], metric) for name in data))
        print_table(table, metric)
    if any(cell.home for cell in cells):
        out.print(plain("* compiled with this LM and data set"))
    for cell in cells:
        for metric, comparison in cell.scores.items():
            out.print(
                plain(f"{cell.lm}, {cell.data}, {metric}: {comparison.verdict}"), soft_wrap=True
            )


def _shown(cell: Cell, metric: str) -> str:
    comparison = cell.scores[metric]
    mean = mean_with_half(comparison.mean_b, comparison.interval_b)
    difference = f"{comparison.difference:+.3f} {shown_interval(comparison.interval, 3)}"
    return f"{mean} ({difference}){'*' if cell.home else ''}"
