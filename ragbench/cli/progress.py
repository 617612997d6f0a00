"""What a long command shows on stderr while it works, and its tables where Ctrl-C ends it.

On a terminal a bar or a live table; elsewhere a line every 30 s, or one per cell of a sweep.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ragbench import stopping
from ragbench.context import current
from ragbench.experiments.report.table import printable
from ragbench.record import Record, Totals

if TYPE_CHECKING:
    from ragbench.experiments.runs import Evaluation
    from ragbench.experiments.sweep import Cell, Outcome


#: Seconds between two lines, where stderr is no terminal.
EVERY_S = 30.0


class RunProgress:
    """Shows how much of an index is made, how many questions are done, and what they came to.

    `making` is what is made where nothing else says so; without a `console` it is shown on stderr.
    """

    def __init__(self, making: str = "preparing", console: Console | None = None) -> None:
        self._making, self._console = making, console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[so_far]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),  # what goes to a file or a pipe still does
        )
        self._task: Any = None
        self._preparing: Any = None
        self._begun = self._said = time.monotonic()
        self._billed = Totals()
        self._em = self._f1 = 0.0
        self._n = self._failed = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def prepare(self, done: int, total: int) -> None:
        """Say how far the index, and what else all questions share, has come."""
        from ragbench.ledger import current_ledger  # needs DSPy, which is slow to import

        what = current().making or self._making
        if self._preparing is None:
            self._preparing = self._bar.add_task(what, so_far="")
        self._bar.update(
            self._preparing, description=what, completed=done, total=total, visible=done < total
        )
        line = f"{what}: {done} of {total}"
        ledger = current_ledger()
        billed = ledger.billed if ledger else Totals()
        if billed.attempts:
            rate = billed.attempts / max(time.monotonic() - self._begun, 1e-9)
            line += f", {billed.attempts:,} calls, {rate:.1f} a second"
            if billed.cost_usd and done:
                whole = billed.cost_usd * total / done
                line += f", ${billed.cost_usd:.4f} so far, about ${whole:.4f} in all"
        self._say(line)

    def start(self, title: str, todo: int, done: int) -> None:
        """Say what is about to run: `todo` questions, `done` already finished."""
        again = f" ({done} finished before)" if done else ""
        self._console.print(
            f"{title}: {todo} questions to ask{again}", style="dim", markup=False, soft_wrap=True
        )
        self._begun = self._said = time.monotonic()
        self._task = self._bar.add_task("answering", total=todo, so_far="")

    def update(self, record: Record, done: int, todo: int) -> None:
        """Count one record in."""
        self._n += 1
        self._failed += record.failure is not None
        self._em += record.scores.get("em") or 0.0
        self._f1 += record.scores.get("f1") or 0.0
        self._billed += record.ledger.billed
        rate = self._n / max(time.monotonic() - self._begun, 1e-3)
        so_far = self._so_far(rate)
        self._bar.update(self._task, completed=done, so_far=so_far)
        left = (todo - done) / rate
        clock = f", {left // 60:.0f}:{left % 60:02.0f} left" if done < todo else ""
        self._say(f"{done}/{todo}{clock}  {so_far}", last=done == todo)

    def _say(self, line: str, *, last: bool = False) -> None:
        """Print `line` where there is no bar, if 30 seconds have gone by or it is the last one."""
        now = time.monotonic()
        if self._console.is_terminal or now - self._said < (1.0 if last else EVERY_S):
            return
        self._said = now
        self._console.print(line, style="dim", markup=False, soft_wrap=True)

    def _so_far(self, rate: float) -> str:
        """Rate, dollars, scores and failures, in words."""
        pace = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
        usd = self._billed.cost_usd
        cost = "$ unknown" if usd is None else f"${usd:.4f}"
        failed = f"  failed {self._failed}" if self._failed else ""
        return f"{pace}  {cost}  EM {self._em / self._n:.3f}  F1 {self._f1 / self._n:.3f}{failed}"


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


T = TypeVar("T")


@contextlib.contextmanager
def so_far(results: Sequence[T], show: Callable[[Sequence[T]], None]) -> Iterator[None]:
    """Where Ctrl-C ends the block, `show` the `results` it has, if any, before it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if results:
            show(results)
        raise


@contextlib.contextmanager
def table_so_far(folder: Path, by: Any = None) -> Iterator[None]:
    """Where Ctrl-C ends the block, print the table of the runs in `folder` before it goes on.

    These are the run that `folder` is, or those in it: arms, cells, trials. `by` are breakdowns.
    """
    with so_far([folder], lambda _: _print(folder, by)):
        yield


def until_stopped(items: Iterable[T]) -> Iterator[T]:
    """`items`, for work on each that ends early, and in order, where Ctrl-C stopped the process.

    Raises:
        KeyboardInterrupt: it was stopped during the work on the last one given.
    """
    for item in items:
        yield item
        if stopping.stopped():
            raise KeyboardInterrupt


def _print(folder: Path, by: Any) -> None:
    from ragbench.errors import RunError
    from ragbench.experiments.report.tables import print_runs
    from ragbench.experiments.runs import reopen
    from ragbench.experiments.store import DATABASE, runs_under

    runs = []
    for path in sorted(runs_under(folder), key=lambda path: (path / DATABASE).stat().st_mtime):
        with contextlib.suppress(RunError):  # it was interrupted before it had begun
            runs.append(reopen(path))
    if runs := [run for run in runs if run.records or run.prepared.attempts]:
        print_runs(runs, by)
