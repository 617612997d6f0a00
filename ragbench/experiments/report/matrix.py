"""Cells of a sweep as rows and columns of the settings in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ragbench.experiments.report.brief import short, word_of
from ragbench.experiments.report.means import measured
from ragbench.experiments.report.sections import Section
from ragbench.experiments.report.table import Column, Table, counted, usd_of_1000
from ragbench.experiments.runs.settings import plain_settings
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import RunCard
from ragbench.metrics import Comparison

Entry = TypeVar("Entry")
#: Settings that differ between cells without being an axis of the sweep.
_NOT_AXES = frozenset(
    {"program", "program_prompts", "program_source", "set", "compiled", "votes_seed"}
)
#: Maximum number of columns in a table of 80 characters.
_MOST_COLUMNS = 3


def axes_of(cards: Mapping[str, RunCard]) -> dict[str, dict[str, str]]:
    """Return the settings in which cells differ.

    Args:
        cards: Card of each cell's run, by label of the cell.

    Returns:
        The value of each cell by label, by setting. A cell without the setting is missing.
    """
    values: dict[str, dict[str, str]] = {}
    for label, card in cards.items():
        for name, value in plain_settings(card).items():
            values.setdefault(name, {})[label] = str(value)
    axes = {}
    for name, of_cell in values.items():
        if len(set(of_cell.values())) > 1 and name not in _NOT_AXES:
            axes[name] = of_cell
    return axes


def arrange(
    cards: Mapping[str, RunCard], entries: Mapping[str, Entry]
) -> tuple[list[tuple[str, list[Entry | None]]], list[str]]:
    """Arrange cells by program and by the other settings in which they differ.

    Args:
        cards: Card of each cell's run, by label of the cell.
        entries: Displayed entry of each cell, by label.

    Returns:
        Rows (name, and an entry or None for each column), and the names of the columns.
    """
    axes = axes_of(cards)
    grid: dict[str, dict[str, Entry]] = {}
    columns: dict[str, None] = {}
    for label, card in cards.items():
        column = _words(axes, list(axes), label) or "score"
        columns[column] = None
        grid.setdefault(_program(card), {})[column] = entries[label]
    rows: list[tuple[str, list[Entry | None]]] = []
    for name, cells in grid.items():
        rows.append((name, [cells.get(column) for column in columns]))
    return rows, list(columns)


def sweep_headline(metric: str, n: int, words: Mapping[str, str]) -> str:
    """Summarize the contrasts of a sweep in one sentence.

    Args:
        metric: Metric of the contrasts.
        n: Number of cells of the sweep.
        words: Outcome of each cell's contrast with the baseline, such as "better".
    """
    better = [label for label, word in words.items() if word == "better"]
    tests = counted(len(words), "comparison")
    if not better:
        return f"{n} cells: no {metric} is significantly better than its baseline ({tests})"
    best = ", ".join(better[:2])
    further = f" and {len(better) - 2} more" if len(better) > 2 else ""
    return (
        f"{n} cells: {best}{further} significantly better in {metric} than the baseline ({tests})"
    )


def sweep_section(
    runs: Mapping[str, Evaluation], metric: str, contrasts: Mapping[str, Comparison]
) -> Section:
    """Return a grid of the cells of a sweep: the score of each and its difference.

    Args:
        runs: Run of each cell, by label.
        metric: Metric of the scores.
        contrasts: Comparison of each cell with its baseline, by label.
    """
    cards = {label: run.card for label, run in runs.items()}
    axes = axes_of(cards)
    across = _axis_of_columns(axes)
    down = [name for name in axes if name != across]
    columns: dict[str, None] = {}
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for label, run in runs.items():
        column = _words(axes, [across] if across else [], label) or metric.upper()
        columns[column] = None
        rows_of_group = groups.setdefault(_words(axes, down, label), {})
        cells = rows_of_group.setdefault(_program(run.card), {})
        cells[column] = _cell(run, metric, contrasts.get(label))
    rows: list[dict[str, Any]] = []
    for group, programs in groups.items():
        if group:
            rows.append({"program": group, **dict.fromkeys(columns, " ")})
        for name, cells in programs.items():
            rows.append({"program": f"  {name}" if group else name, **cells})
    words = {label: word_of(c).strip() for label, c in contrasts.items()}
    prose = [sweep_headline(metric, len(runs), words)]
    heads = [Column("program"), *(Column(name, kind="score") for name in columns)]
    sizes = sorted({run.summary.n for run in runs.values()})
    title = f"{metric.upper()} of {sizes[0]} to {sizes[-1]} questions, difference from the baseline"
    if len(sizes) == 1:
        title = f"{metric.upper()} of {sizes[0]} questions, difference from the baseline"
    notes = [_cost_line(list(runs.values()))]
    return Section(prose, Table("cells", heads, rows, title), notes, "brief")


def _program(card: RunCard) -> str:
    return card.system + (" compiled" if card.identity.get("compiled") else "")


def _words(axes: Mapping[str, Mapping[str, str]], chosen: Sequence[str], label: str) -> str:
    return ", ".join(f"{name}={axes[name][label]}" for name in chosen if label in axes[name])


def _axis_of_columns(axes: Mapping[str, Mapping[str, str]]) -> str:
    """Return the axis with the most values that fit next to each other; empty for none."""
    sizes = {name: len(set(values.values())) for name, values in axes.items()}
    fitting = [name for name, size in sizes.items() if size <= _MOST_COLUMNS]
    return max(fitting, key=sizes.__getitem__, default="")


def _cell(run: Evaluation, metric: str, contrast: Comparison | None) -> str:
    text = short("score", metric, {metric: measured(run.records, metric)[metric]})
    if contrast is None:
        return f"{text} base"
    word = {"better": "*", "worse": "!"}.get(word_of(contrast), "")
    return f"{text} {short('gain', 'gain', {'gain': contrast.difference})}{word}"


def _cost_line(runs: Sequence[Evaluation]) -> str:
    """Return the range of dollars for 1,000 questions, and the number of failed questions."""
    costs = []
    for run in runs:
        usd = run.summary.as_if.cost_usd
        if usd is not None and run.summary.n:
            costs.append(usd / run.summary.n)
    line = "* better, ! worse; $ for 1,000: unknown"
    if costs:
        line = f"* better, ! worse; $ for 1,000: {usd_of_1000(min(costs))}"
        line += f" to {usd_of_1000(max(costs))}"
    failed = sum(run.summary.failed for run in runs)
    return f"{line}; {failed} failed; every contrast: --wide"
