"""Output of commands: tables in the selected format, and prose around them.

The options of a command set the format before it prints. In a format for machines, standard output
contains only tables, and prose goes to stderr.
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import Any

from ragbench.errors import UnknownNameError
from ragbench.experiments.report.sections import Report, as_section
from ragbench.experiments.report.table import Table, on_terminal, printable, wrapped, written


@dataclass
class _Output:
    """The output format of the command; `pending` tables are written when it ends.

    `table` is the name of the only table to print, and `omitted` are the omitted ones.
    """

    format: str = "table"
    wide: bool = False
    names: bool = False
    table: str = ""
    printed: bool = False
    omitted: list[str] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)


_output = _Output()


def set_output(name: str, value: str | bool) -> None:
    """Set one of the options format, wide, names and table for all further output.

    CSV and LaTeX print one table: the first one, or `table`.

    Args:
        name: Name of the option.
        value: Its value.
    """
    setattr(_output, name, value)


def reset_output() -> None:
    """Forget the options and tables of an earlier command of this process."""
    vars(_output).update(vars(_Output()))


def for_machines() -> bool:
    """Return True if standard output contains only tables."""
    return _output.format != "table"


def show(report: Report) -> None:
    """Print the lines and tables of `report`, in their order."""
    # A terminal may be 80 columns wide.
    brief = not (for_machines() or _output.wide or _output.table) and sys.stdout.isatty()
    hidden = {"full" if brief else "brief"}
    if not _output.names:
        hidden.add("names")
    for item in report:
        section = as_section(item)
        if section.level not in hidden:
            say(*section.prose)
            if section.table is not None:
                print_table(section.table)
            say(*section.notes)


def say(*lines: str, err: bool = False) -> None:
    """Print prose, wrapped on a terminal.

    Args:
        lines: Lines to print.
        err: True: print to stderr, as in every format for machines.
    """
    out = sys.stdout
    if err or for_machines():
        out = sys.stderr
    room = 0
    if out.isatty():
        room = shutil.get_terminal_size().columns
    for line in lines:
        print("\n".join(wrapped(printable(line), room)), file=out)


def print_table(table: Table) -> None:
    """Print `table`. JSON tables are collected until `flush`, to form one document."""
    if table.for_machines and not for_machines():
        return
    alone = _output.format in ("csv", "latex") and not _output.table
    if (alone and _output.printed) or _output.table not in ("", table.name):
        _output.omitted.append(table.name)
        return
    if _output.format == "json":
        _output.printed = True
        _output.pending.append({"table": table.name, "rows": table.records()})
        say(*table.notes)
        return
    if table.title:
        say(table.title)
    if for_machines() and _output.printed:
        print()
    _output.printed = True
    if _output.format == "table" and sys.stdout.isatty():
        room = 0
        if not _output.wide:
            room = shutil.get_terminal_size().columns
        text = on_terminal(table, room)
        if os.environ.get("TERM") == "dumb":
            text = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
        print(text)
    else:
        print(written(table, _output.format))
    say(*table.notes)


def flush() -> None:
    """Write the collected tables at the end of a command.

    Raises:
        UnknownNameError: The command has no table with the requested name.
    """
    left_out = list(dict.fromkeys(_output.omitted))
    if left_out and _output.table and not _output.printed:
        raise UnknownNameError("table of this command", _output.table, left_out)
    if left_out and not _output.table:
        say(f"left out: {', '.join(left_out)}; --table NAME writes one of them", err=True)
    if _output.pending:
        print(json.dumps(_output.pending, indent=2, ensure_ascii=False, default=str))
    reset_output()
