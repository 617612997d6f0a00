"""Tables of text in every format that a command can print; needs neither rich nor pydantic.

The format is that of the command in progress: `set_format` is called once, before anything is
printed. In a format for machines, standard output holds tables alone; prose goes to stderr.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

#: A number, half the width of its interval, and what else stands there.
_HALF = re.compile(r"(\S+) ±(\S+)(.*)")

Format = Literal["table", "json", "csv", "markdown", "latex", "html"]
FORMATS: tuple[str, ...] = get_args(Format)


@dataclass
class _Output:
    """The output format of the command; `pending` tables are written when it ends."""

    format: str = "table"
    wide: bool = False
    printed: bool = False
    pending: list[dict[str, Any]] = field(default_factory=list)


_output = _Output()


@dataclass(frozen=True)
class Grid:
    """A table of text. Columns in `left` are words, the others numbers.

    Where a terminal is too narrow, the columns in `drop` are left out, the first one first.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[str] = frozenset()
    drop: Sequence[str] = ()

    def without(self, column: str) -> Grid:
        """The table without one column."""
        at = list(self.columns).index(column)
        keep = [i for i in range(len(self.columns)) if i != at]
        rows = [[row[i] for i in keep] for row in self.rows]
        return Grid([self.columns[i] for i in keep], rows, self.left, self.drop)

    def widths(self) -> list[int]:
        """Characters of each column."""
        return [
            max(len(name), *(len(row[i]) for row in self.rows), 0)
            for i, name in enumerate(self.columns)
        ]

    def width(self) -> int:
        """Characters of a line."""
        return sum(self.widths()) + 3 * len(self.columns) + 1


def set_format(format: str, *, wide: bool = False) -> None:
    """Print tables from now on in `format`, one of `FORMATS`; `wide` shows every column."""
    _output.format, _output.wide = format, wide
    _output.printed, _output.pending = False, []


def for_machines() -> bool:
    """Whether standard output is to hold tables alone."""
    return _output.format != "table"


def print_grid(grid: Grid, name: str = "") -> None:
    """Print `grid`; as JSON it is kept until `flush`, so that the output is one document."""
    if _output.format in ("json", "csv"):
        grid = apart(grid)
    if _output.format == "json":
        _output.pending.append({"table": name, "rows": _records(grid)})
        return
    text = _FORMATTERS[_output.format](grid)
    dropped: list[str] = []
    if _output.format == "table" and sys.stdout.isatty():
        grid, dropped = _fitted(grid)
        text = _coloured(_markdown(grid))
    if for_machines() and _output.printed:
        print()
    _output.printed = True
    print(text)
    if dropped:
        print(f"left out for the width: {', '.join(dropped)} (--wide shows all)")


def as_latex(grid: Grid) -> str:
    """`grid` as a LaTeX tabular."""
    return _latex(grid)


def apart(grid: Grid) -> Grid:
    """`grid` with what stands after ± in columns of their own, so that every cell is one number."""
    columns: list[str] = []
    cells: list[list[str]] = []
    for at, name in enumerate(grid.columns):
        column = [row[at] for row in grid.rows]
        if name in grid.left or not any(" ±" in cell for cell in column):
            columns.append(name)
            cells.append(column)
            continue
        split = [_HALF.fullmatch(cell) for cell in column]
        columns += [name, f"{name} ±"]
        whole = [m[1] + m[3] if m else cell for m, cell in zip(split, column, strict=True)]
        cells += [whole, [m[2] if m else "" for m in split]]
    rows = [list(row) for row in zip(*cells, strict=True)]
    return Grid(columns, rows, grid.left, grid.drop)


def flush() -> None:
    """Write the tables that are kept; called when a command ends."""
    if _output.pending:
        print(json.dumps(_output.pending, indent=2, ensure_ascii=False))
    set_format("table")


def _fitted(grid: Grid) -> tuple[Grid, list[str]]:
    dropped: list[str] = []
    room = shutil.get_terminal_size().columns
    for column in grid.drop:
        if _output.wide or grid.width() <= room:
            break
        if column in grid.columns:
            grid = grid.without(column)
            dropped.append(column)
    return grid, dropped


def _records(grid: Grid) -> list[dict[str, Any]]:
    return [
        {n: c if n in grid.left else _value(c) for n, c in zip(grid.columns, row, strict=True)}
        for row in grid.rows
    ]


def _value(cell: str) -> Any:
    """A cell of numbers as what it says; None where it holds none."""
    text = cell.replace(",", "")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if cell in ("", "-", "unknown") else cell


def _csv(grid: Grid) -> str:
    out = io.StringIO()
    words = [name in grid.left for name in grid.columns]
    rows = [
        [cell if word else cell.replace(",", "") for word, cell in zip(words, row, strict=True)]
        for row in grid.rows
    ]
    csv.writer(out, lineterminator="\n").writerows([grid.columns, *rows])
    return out.getvalue().rstrip("\n")


def _markdown(grid: Grid) -> str:
    widths = grid.widths()

    def line(cells: Sequence[str]) -> str:
        parts = [
            f"{c:<{w}}" if n in grid.left else f"{c:>{w}}"
            for n, c, w in zip(grid.columns, cells, widths, strict=True)
        ]
        return f"| {' | '.join(parts)} |"

    rule = f"|{'|'.join('-' * (w + 2) for w in widths)}|"
    return "\n".join([line(grid.columns), rule, *map(line, grid.rows)])


def _coloured(text: str) -> str:
    head, _, rest = text.partition("\n")
    return f"\x1b[1m{head}\x1b[0m\n{rest}"


def _latex(grid: Grid) -> str:
    escapes = {c: f"\\{c}" for c in "&%$#_{}"} | {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    }  # fmt: skip

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(escapes.get(c, c) for c in cell) for cell in cells) + r" \\"

    sides = "".join("l" if name in grid.left else "r" for name in grid.columns)
    rows = [line(grid.columns), r"\hline", *map(line, grid.rows)]
    return "\n".join([rf"\begin{{tabular}}{{{sides}}}", *rows, r"\end{tabular}"])


def _html(grid: Grid) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    rows = [line(grid.columns, "th"), *(line(row, "td") for row in grid.rows)]
    return "\n".join(["<table>", *rows, "</table>"])


_FORMATTERS = {
    "table": _markdown,
    "markdown": _markdown,
    "csv": _csv,
    "latex": _latex,
    "html": _html,
}
