"""Sections of a report: one list of data that every output renders.

A report is a list of sections, and a section is prose and a table. The terminal, Markdown, LaTeX,
CSV and JSON render the same list. A section can be for one of them: a terminal of 80 columns shows
short tables with a letter for each program, and `--wide` shows all columns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ragbench.experiments.report.table import Table

#: Outputs that show a section. "always": all. "brief": only a terminal without --wide. "full": all
#: others. "names": only with --names.
Level = Literal["always", "brief", "full", "names"]


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        prose: Lines before the table.
        table: Rows under columns. None if the section is prose only.
        notes: Lines after the table.
        level: Where the section is shown.
    """

    prose: Sequence[str] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    level: Level = "always"


#: Sections in reading order. A line or a table is a section with only that content.
Report: TypeAlias = Iterable[str | Table | Section]


def as_section(item: str | Table | Section) -> Section:
    """Return `item` of a report as a section."""
    if isinstance(item, Section):
        return item
    if isinstance(item, Table):
        return Section(table=item)
    return Section([item])


def full(report: Report) -> Report:
    """Yield the sections of `report`, but omit them on a terminal without --wide."""
    for item in report:
        section = as_section(item)
        yield Section(section.prose, section.table, section.notes, "full")
