"""Cells of a sweep as rows and columns of the settings in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ragbench.experiments.report.rows import measured
from ragbench.experiments.report.sections import Section
from ragbench.experiments.report.table import Column, Table, counted, usd_of_1000
from ragbench.experiments.report.tables import sizes_in_words
from ragbench.experiments.runs.settings import plain_settings
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import RunCard
from ragbench.metrics import Comparison

Entry = TypeVar("Entry")
#: Settings that differ between cells without being an axis of the sweep.
_NOT_AXES = frozenset(
    {"program", "program_prompts", "program_source", "set", "compiled", "votes_seed"}
)
_SCORE = Column("x", kind="score", narrow=True)
_GAIN = Column("x", kind="gain", narrow=True)
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
) -> tuple[list[tuple[str, str, list[Entry | None]]], list[str]]:
    """Arrange cells by program and by the settings in which they differ.

    Columns are the values of the axis with the most values that fit, rows those of the others.

    Args:
        cards: Card of each cell's run, by label of the cell.
        entries: Displayed entry of each cell, by label.

    Returns:
        Rows (settings of the group, program, and an entry or None for each column), grouped by
        their settings, and the names of the columns.
    """
    axes = axes_of(cards)
    across = _axis_of_columns(axes)
    down = [name for name in axes if name not in across]
    columns: dict[str, None] = {}
    groups: dict[str, dict[str, dict[str, Entry]]] = {}
    for label, card in cards.items():
        column = _words(axes, across, label)
        columns[column] = None
        cells = groups.setdefault(_words(axes, down, label), {}).setdefault(_program(card), {})
        cells[column] = entries[label]
    rows: list[tuple[str, str, list[Entry | None]]] = []
    for group, programs in groups.items():
        for name, cells in programs.items():
            rows.append((group, name, [cells.get(column) for column in columns]))
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
    found = "is significantly better" if len(better) == 1 else "are significantly better"
    return f"{n} cells: {best}{further} {found} in {metric} than the baseline ({tests})"


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
    entries = {label: _cell(run, metric, contrasts.get(label)) for label, run in runs.items()}
    grid, columns = arrange(cards, entries)
    rows: list[dict[str, Any]] = []
    last = ""
    for group, name, cells in grid:
        if group != last:
            rows.append({"program": group, **dict.fromkeys(columns, " ")})
            last = group
        indented = f"  {name}" if group else name
        rows.append({"program": indented, **dict(zip(columns, cells, strict=True))})
    words = {label: c.outcome for label, c in contrasts.items()}
    prose = [sweep_headline(metric, len(runs), words)]
    heads = [
        Column("program"),
        *(Column(name, name or metric.upper(), "score") for name in columns),
    ]
    n = sizes_in_words(run.summary.n for run in runs.values())
    title = f"{metric.upper()} of {n} questions, difference from the baseline"
    notes = [_cost_line(list(runs.values()))]
    return Section(prose, Table("cells", heads, rows, title), notes, "brief")


def _program(card: RunCard) -> str:
    return card.system + (" compiled" if card.identity.get("compiled") else "")


def _words(axes: Mapping[str, Mapping[str, str]], chosen: Sequence[str], label: str) -> str:
    return ", ".join(f"{name}={axes[name][label]}" for name in chosen if label in axes[name])


def _axis_of_columns(axes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the axis with the most values that fit next to each other, if there is one."""
    sizes = {name: len(set(values.values())) for name, values in axes.items()}
    fitting = [name for name, size in sizes.items() if size <= _MOST_COLUMNS]
    return sorted(fitting, key=sizes.__getitem__, reverse=True)[:1]


def _cell(run: Evaluation, metric: str, contrast: Comparison | None) -> str:
    text = _SCORE.cell({"x": measured(run.records, metric)[metric]})
    if contrast is None:
        return f"{text} base"
    word = {"better": "*", "worse": "!"}.get(contrast.outcome, "")
    return f"{text} {_GAIN.cell({'x': contrast.difference})}{word}"


def _cost_line(runs: Sequence[Evaluation]) -> str:
    """Return the range of dollars for 1,000 questions, and the number of failed questions."""
    costs = []
    for run in runs:
        usd = run.summary.as_if.cost_usd
        if usd is not None and run.summary.n:
            costs.append(usd / run.summary.n)
    dollars = "unknown"
    if costs:
        dollars = f"{usd_of_1000(min(costs))} to {usd_of_1000(max(costs))}"
    failed = sum(run.summary.failed for run in runs)
    return f"* better, ! worse; $ for 1,000: {dollars}; {failed} failed; every contrast: --wide"
