"""Tables: columns described once, and rows of plain values, for every output format.

A row maps names to values as computed. JSON and CSV contain these values without rounding. The
column defines how a value looks in the other formats (terminal, Markdown, LaTeX, HTML). Nothing
here prints: a report is a list of sections (`report.sections`). This module does not import rich or
pydantic, so that `ragbench list` and `ragbench list runs` start fast.
"""

import csv
import html
import io
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, get_args

from ragbench.errors import needs_extra

Format = Literal["table", "json", "csv", "markdown", "latex", "html"]
FORMATS: tuple[str, ...] = get_args(Format)
Kind = Literal[
    "text",
    "count",
    "score",
    "mean",
    "gain",
    "amount",
    "usd",
    "usd_1000",
    "seconds",
    "share",
    "number",
    "p",
]
Row = Mapping[str, Any]

#: Format of each kind of number.
_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "count": lambda n: f"{n:,}",
    "score": lambda x: f"{x:z.3f}",
    "mean": lambda x: f"{x:,.0f}" if isinstance(x, int) or abs(x) >= 100 else f"{x:z.3f}",
    "gain": lambda x: f"{x:+z.3f}",
    "amount": lambda x: f"{x:,.0f}" if abs(x) >= 100 else f"{x:z.1f}",
    "usd": lambda x: f"{x:z,.{2 if abs(x) >= 100 else 6 if 0 < abs(x) < 0.001 else 4}f}",
    "usd_1000": lambda x: usd_of_1000(x),
    "seconds": lambda x: f"{x:z.1f}",
    "share": lambda x: f"{x:z.0%}",
    "number": lambda x: f"{x:z.4g}",
    "p": lambda p: "<0.001" if p < 0.0005 else f"{p:.3f}",
}
#: Blank at which cells are not wrapped.
_TIED = "\N{NO-BREAK SPACE}"
#: Blanks between two columns on a terminal.
_GAP = 2
#: Maximum padding in Markdown, so that a long cell does not lengthen every row.
_MOST_PADDING = 60
#: Control characters except line ends and tabs.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: First characters that make a spreadsheet read a text as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Column:
    """A column: the key of its value in a row, and the format of the value.

    Attributes:
        name: Key of the value in a row.
        head: Heading. Default: the name.
        kind: Format of numbers. `usd_1000` is dollars per question, shown for 1,000 questions. None
            is shown as "-", or as "unknown" for dollars.
        interval: The row also has the ends of the interval, see `with_interval`.
        drop: Priority for omission on a narrow terminal. 0 is never omitted. Columns with equal
            values are omitted first.
        most: Maximum number of characters of a text. 0 means all.
        for_machines: Omit the column on a terminal.
        narrow: Shorten scores between -1 and 1 in every width: ".412 [.35,.47]".
    """

    name: str
    head: str = ""
    kind: Kind = "text"
    interval: bool = False
    drop: int = 0
    most: int = 0
    for_machines: bool = False
    narrow: bool = False

    @property
    def heading(self) -> str:
        return printable(self.head or self.name)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the values of a row that belong to the column."""
        if self.interval:
            return (self.name, *ends_of(self.name))
        return (self.name,)

    def cell(self, row: Row, *, narrow: bool = False) -> str:
        """Return the displayed value, such as "0.412 [0.351, 0.473]".

        Args:
            row: The row.
            narrow: Shorten scores between -1 and 1: ".412 [.35,.47]".
        """
        value = row.get(self.name)
        if value is None or value == "":
            if self.kind.startswith("usd") and self.name in row:
                return "unknown"
            return "-"
        if self.kind == "text" or isinstance(value, str):
            text = printable(str(value))
            if self.most and len(text) > self.most:
                return f"{text[: self.most - 3]}..."
            return text
        render = _SHOWN[self.kind]
        text = render(value)
        narrow = narrow or self.narrow
        short = narrow and self.kind in ("score", "mean", "gain") and abs(value) < 1
        if short:
            text = _without_zero(text)
        low, high = map(row.get, ends_of(self.name))
        if not self.interval or low is None or high is None:
            return text
        if short:
            sign = "+" if self.kind == "gain" else ""
            return f"{text}{_TIED}[{_two_decimals(low, sign)},{_two_decimals(high, sign)}]"
        return f"{text} [{render(low)},{_TIED}{render(high)}]"


@dataclass(frozen=True)
class Table:
    """Rows under columns.

    Attributes:
        name: Name in JSON.
        columns: The columns.
        rows: Values by name of the column.
        title: Line above the table.
        notes: Lines below the table.
        for_machines: Omit the table on a terminal, where sentences give the same facts.
        caption: Beginning of the caption in LaTeX.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()
    for_machines: bool = False
    caption: str = ""

    def __str__(self) -> str:
        return written(self, "table")

    def _repr_html_(self) -> str:
        """Return the table as HTML for a notebook."""
        return written(self, "html")

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`, without rounding."""
        with needs_extra("pandas"):
            import pandas
        return pandas.DataFrame(self.records())

    def cells(self) -> list[list[str]]:
        """Return the rows as displayed text."""
        return _cells(self)[1:]

    @property
    def fields(self) -> list[str]:
        """Names of all values that a row has for the columns, in order."""
        return list(chain.from_iterable(column.fields for column in self.columns))

    def records(self) -> list[dict[str, Any]]:
        """Return the computed values of the rows, only for the fields of the columns."""
        fields = self.fields
        records = []
        for row in self.rows:
            record = {name: row.get(name) for name in fields}
            for name, value in record.items():
                if isinstance(value, float):
                    record[name] = value + 0.0  # -0.0 + 0.0 is 0.0.
            records.append(record)
        return records


def _without_zero(text: str) -> str:
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def _two_decimals(value: float, sign: str) -> str:
    return _without_zero(f"{value:{sign}z.2f}")


def counted(n: int, noun: str) -> str:
    """Return a number of things, such as "1 test" or "1,200 tests".

    Args:
        n: Number of things.
        noun: Name of one thing.
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def usd_of_1000(usd: float) -> str:
    """Return dollars per question as dollars for 1,000; two digits below 10 cents."""
    amount = 1000 * usd
    if 0 < abs(amount) < 0.1:
        return f"{amount:.2g}"
    return f"{amount:z,.2f}"


def ends_of(name: str) -> tuple[str, str]:
    """Return the keys of the ends of the interval of the value called `name`."""
    return f"{name}_low", f"{name}_high"


def with_interval(name: str, value: float | None, interval: Any) -> dict[str, float | None]:
    """Return a value and its interval as cells of a row.

    Args:
        name: Name of the value.
        value: The value.
        interval: A pair, a mapping or object with `low` and `high`, or None.
    """
    if isinstance(interval, Mapping):
        interval = (interval["low"], interval["high"])
    elif hasattr(interval, "low"):
        interval = (interval.low, interval.high)
    low, high = interval or (None, None)
    return dict(zip((name, *ends_of(name)), (value, low, high), strict=True))


def printable(text: str) -> str:
    """Replace each control character and line end in `text` by a blank."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)


def written(table: Table, format: str) -> str:
    """Format a table as text.

    Args:
        table: The table.
        format: One of `FORMATS`.
    """
    if format == "table":
        table = for_people(table)
    writers: dict[str, Callable[[Table], str]] = {
        "table": _markdown, "markdown": _markdown, "csv": _csv, "latex": _latex, "html": _html,
        "json": lambda t: json.dumps(t.records(), indent=2, ensure_ascii=False, default=str),
    }  # fmt: skip
    return writers[format](table)


def for_people(table: Table) -> Table:
    """Return `table` without columns that are for machines only."""
    return replace(table, columns=[column for column in table.columns if not column.for_machines])


def on_terminal(table: Table, room: int) -> str:
    """Format a table for a terminal.

    To fit, intervals are shortened first. Then cells are wrapped between words, and columns are
    omitted. Columns without a priority stay, even if lines are longer than `room`.

    Args:
        table: The table.
        room: Maximum number of characters of a line. 0 means any.
    """
    table = for_people(table)
    columns = list(table.columns)
    left_out = list[str]()
    narrow = bool(room) and _width(_cells(table, columns), len) > room
    while narrow and _width(_cells(table, columns, narrow=True), _longest) > room:
        gone = max(columns, key=lambda c: (c.drop > 0, _same(table, c), c.drop))
        if not gone.drop:
            break
        columns.remove(gone)
        left_out.append(gone.heading)
    cells = _cells(table, columns, narrow=narrow)
    lines = _aligned(cells, _fit(cells, room), [c.kind == "text" for c in columns])
    note = f"omitted to fit the width: {', '.join(left_out)} (--wide shows all)"
    below = wrapped(note, room) if left_out else []
    return "\n".join([f"\x1b[1m{lines[0]}\x1b[0m", *lines[1:], *below])


def _same(table: Table, column: Column) -> bool:
    return len(table.rows) > 1 and len(set(map(column.cell, table.rows))) == 1


def _cells(
    table: Table, columns: Sequence[Column] = (), *, narrow: bool = False
) -> list[list[str]]:
    """Return headings and rows as displayed text, for all columns or only for `columns`."""
    columns = columns or table.columns
    cells = [[column.heading for column in columns]]
    for row in table.rows:
        cells.append([column.cell(row, narrow=narrow) for column in columns])
    return cells


def _longest(text: str) -> int:
    return max(map(len, text.split(" ")))


def _width(cells: Sequence[Sequence[str]], of_cell: Callable[[str], int]) -> int:
    """Return the characters of a line if every cell has at least the width `of_cell`."""
    columns = list(zip(*cells, strict=True))
    return sum(max(map(of_cell, column)) for column in columns) + _GAP * (len(columns) - 1)


def _fit(cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column; the widest ones shrink until lines fit in `room`."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(map(_longest, column)) for column in columns]
    while room and sum(widths) + _GAP * (len(widths) - 1) > room:
        at = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        if widths[at] <= least[at]:
            break
        widths[at] -= 1
    return widths


def _aligned(
    cells: Sequence[Sequence[str]], widths: Sequence[int], flush_left: Sequence[bool]
) -> list[str]:
    lines = []
    for row in cells:
        wrapped_cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for at in range(max(map(len, wrapped_cells))):
            texts = []
            for cell_lines in wrapped_cells:
                texts.append(cell_lines[at] if at < len(cell_lines) else "")
            line = (" " * _GAP).join(_justified(texts, widths, flush_left))
            lines.append(line.rstrip().replace(_TIED, " "))
    return lines


def _justified(row: Sequence[str], widths: Sequence[int], flush_left: Sequence[bool]) -> list[str]:
    cells = []
    for text, width, left_side in zip(row, widths, flush_left, strict=True):
        cells.append(text.ljust(width) if left_side else text.rjust(width))
    return cells


def wrapped(text: str, width: int) -> list[str]:
    """Wrap text at blanks only.

    Args:
        text: The text.
        width: Maximum number of characters of a line. 0 means a single line.
    """
    if not width or len(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip(" "))]
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _markdown(table: Table) -> str:
    escaped = str.maketrans({"|": r"\|", _TIED: " "})
    cells = []
    for row in _cells(table):
        cells.append([c.translate(escaped) for c in row])
    widths = [min(max(map(len, column)), _MOST_PADDING) for column in zip(*cells, strict=True)]
    flush_left = [column.kind == "text" for column in table.columns]
    rows = []
    for row in cells:
        rows.append(f"| {' | '.join(_justified(row, widths, flush_left))} |")
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join([rows[0], f"|-{rule}-|", *rows[1:]])


def _latex(table: Table) -> str:
    """Return a table for the package booktabs, with title and notes as caption."""
    escaped = str.maketrans(
        {c: f"\\{c}" for c in "&%$#_{}"}
        | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
        | {_TIED: "~"}
    )
    table = for_people(table)
    sides = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    lines = []
    for row in _cells(table):
        lines.append(" & ".join(c.translate(escaped) for c in row) + r" \\")
    sentences = [*filter(None, (table.caption, table.title)), *table.notes]
    caption = ". ".join(sentences or [table.name]).translate(escaped)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _html(table: Table) -> str:
    lines = []
    for number, row in enumerate(_cells(table)):
        tag = "td" if number else "th"
        cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    head, *body = lines
    return "\n".join([f"<table><thead>{head}</thead><tbody>", *body, "</tbody></table>"])


def _csv(table: Table) -> str:
    out = io.StringIO()
    rows = [list(map(safe_cell, row.values())) for row in table.records()]
    csv.writer(out, lineterminator="\n").writerows([table.fields, *rows])
    text = out.getvalue().rstrip("\n")  # Cursor movements become blanks, as in other tables.
    return _CONTROLS.sub(" ", text)


def safe_cell(value: Any) -> Any:
    """Return a value for CSV, with a quote before text that a spreadsheet would run as a formula.

    A carriage return becomes a line feed: `csv` does not quote it, so it would start a row.
    """
    if not isinstance(value, str):
        return value
    value = f"'{value}" if value.startswith(_FORMULA) else value
    return value.replace("\r\n", "\n").replace("\r", "\n")
