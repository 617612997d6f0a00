"""A sweep as it runs: a live table on a terminal, a line per finished cell elsewhere; on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragbench.experiments.report.table import printable
from ragbench.record import Record

if TYPE_CHECKING:
    from ragbench.experiments.runs import Evaluation
    from ragbench.experiments.sweep import Cell, Outcome

#: Rows of a terminal that the table leaves free.
_MARGIN = 6


class SweepProgress:
    """Shows each cell's state, its questions done, and EM and F1 so far."""

    def __init__(self, cells: Sequence[Cell], *, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._rows = {cell.label: _Row() for cell in cells}
        self._now = ""
        self._live = Live(
            console=self._console, get_renderable=self._table, refresh_per_second=2, transient=True
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def begin(self, cell: Cell) -> None:
        """See `ragbench.experiments.sweep.sweeps.Watch`, here and below."""
        self._now = cell.label
        self._rows[self._now].state = "starting"

    def prepare(self, done: int, total: int) -> None:
        """Show how much of the index, or of what else all questions share, is made."""
        self._rows[self._now].state = f"preparing {done}/{total}"

    def start(self, title: str, todo: int, done: int) -> None:
        """The questions of the cell begin."""
        row = self._rows[self._now]
        row.state, row.todo, row.before = "answering", todo, done

    def update(self, record: Record, done: int, todo: int) -> None:
        """A question has its record."""
        row = self._rows[self._now]
        row.state, row.done = "answering", done
        row.failed += record.failure is not None
        row.em += record.scores.get("em") or 0.0
        row.f1 += record.scores.get("f1") or 0.0

    def on_message(self, line: str) -> None:
        """Show a message of a compile."""
        self._rows[self._now].state = "compiling"
        self._print(f"  {line}")

    def end(self, outcome: Outcome) -> None:
        """A cell came to an end."""
        row = self._rows[outcome.cell.label]
        row.state, row.run = outcome.state, outcome.run
        if self._console.is_terminal and outcome.state == "done":
            return
        number = 1 + list(self._rows).index(outcome.cell.label)
        why = f" ({outcome.reason})" if outcome.reason else row.words()
        self._print(f"[{number}/{len(self._rows)}] {outcome.cell.label}: {outcome.state}{why}")

    def _print(self, line: str) -> None:
        self._console.print(Text(printable(line)), style="dim", soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        for name in ("cell", "state", "questions", "EM", "F1", "failed"):
            table.add_column(name, justify="left" if name in ("cell", "state") else "right")
        labels = list(self._rows)
        here = labels.index(self._now) if self._now else 0
        room = max(3, self._console.height - _MARGIN)
        first = max(0, min(here - room // 2, len(labels) - room))
        for label in labels[first : first + room]:
            table.add_row(Text(printable(label)), *self._rows[label].cells())
        if len(labels) > room:
            table.caption = f"{len(labels)} cells"
        return table


class _Row:
    """One cell's state, and what its questions came to: of this command, then of the whole run."""

    def __init__(self) -> None:
        self.state = "to do"
        self.todo = self.before = self.done = self.failed = 0
        self.em = self.f1 = 0.0
        self.run: Evaluation | None = None

    def cells(self) -> list[str]:
        if self.run is not None:
            summary = self.run.summary
            scores = [f"{summary.scores.get(name, 0.0):.3f}" for name in ("em", "f1")]
            return [self.state, str(summary.n), *scores, str(summary.failed or "")]
        shown = ["", ""]
        if self.done and not self.before:  # else they are not those of the run
            shown = [f"{self.em / self.done:.3f}", f"{self.f1 / self.done:.3f}"]
        count = f"{self.before + self.done}/{self.before + self.todo}"
        whole = self.before + self.todo
        return [self.state, count if whole else "", *shown, str(self.failed or "")]


    def words(self) -> str:
        """What the run came to."""
        if self.run is None:
            return ""
        _, count, em, f1, failed = self.cells()
        return f", {count} questions, EM {em}, F1 {f1}, {failed or 0} failed"
