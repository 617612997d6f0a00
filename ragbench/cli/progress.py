"""What a long command shows on stderr while it works, and its tables where Ctrl-C ends it.

On a terminal a bar; elsewhere a line every 30 s.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from ragbench import stopping
from ragbench.context import current
from ragbench.experiments.report.table import printable
from ragbench.experiments.watch import Watch
from ragbench.record import Record, Totals

#: Seconds between two lines, where stderr is no terminal.
EVERY_S = 30.0


class RunProgress(Watch):
    """Shows how much is done of what is under way: count, time left, rate, dollars and scores.

    `making` is what is made where nothing else says so.
    """

    def __init__(self, making: str = "preparing", console: Console | None = None) -> None:
        self._making, self._console = making, console or Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            console=self._console,
            disable=not self._console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),  # what goes to a file or a pipe still does
        )
        self._phases: dict[str, _Phase] = {}
        self._opened = self._said = time.monotonic()
        self._billed: Totals | None = None
        self._scores = {"em": 0.0, "f1": 0.0}
        self._failed = 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(Text(printable(line)), style="dim", soft_wrap=True)

    def prepare(self, done: int, total: int) -> None:
        """Show how far the index, and what else all questions share, has come."""
        from ragbench.ledger import current_ledger  # needs DSPy, which is slow to import

        what, ledger = current().making or self._making, current_ledger()
        self._billed = ledger.billed if ledger else None
        for name, phase in self._phases.items():
            if name not in (what, "answering"):
                self._bars.update(phase.task, visible=False)
        usd = self._billed.cost_usd if self._billed else None
        more = f"about ${usd * total / done:.4f} in all" if usd and done else ""
        self._show(what, done, total, more, keep=False)

    def start(self, title: str, todo: int, done: int) -> None:
        """Begin the count of questions; the title, if any, stays above it."""
        if title:
            again = f" ({done} finished before)" if done else ""
            self.say(f"{title}: {todo} questions to ask{again}")
        self._said = time.monotonic()
        self._begin("answering", todo, 0, self._said)
        self._billed, self._failed = Totals(), 0
        self._scores = dict.fromkeys(self._scores, 0.0)

    def update(self, record: Record, done: int, todo: int) -> None:
        """Count one record in."""
        self._billed = (self._billed or Totals()) + record.ledger.billed
        self._failed += record.failure is not None
        for name in self._scores:
            self._scores[name] += record.scores.get(name) or 0.0
        more = "  ".join(f"{name.upper()} {of / done:.3f}" for name, of in self._scores.items())
        self._show("answering", done, todo, more + f"  failed {self._failed}" * bool(self._failed))

    def count(self, what: str, done: int, total: int, more: str = "") -> None:
        """Show how many of `what` are done: trials, replies of a judge."""
        self._billed = None
        self._show(what, done, total, more)

    def _begin(self, what: str, n: int, first: int, begun: float) -> _Phase:
        old = self._phases.get(what)
        task = old.task if old else self._bars.add_task(what, words="")
        self._phases[what] = _Phase(task, n, first, begun)
        return self._phases[what]

    def _show(self, what: str, done: int, n: int, more: str = "", *, keep: bool = True) -> None:
        now, phase = time.monotonic(), self._phases.get(what)
        if phase is None or phase.n != n or done < phase.done:
            before = phase.seen if phase else self._opened
            # What was done by an earlier command says nothing of the rate.
            phase = self._begin(what, n, *((done, now) if done > 1 else (0, before)))
        phase.seen, phase.done = now, done
        rate = (done - phase.first) / max(now - phase.begun, 1e-3)
        pace = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
        left = (n - done) / rate if rate else 0.0
        clock = f"{left // 60:.0f}:{left % 60:02.0f} left" if left else ""
        words = "  ".join(filter(None, (pace, self._dollars(), more)))
        self._bars.update(
            phase.task, completed=done, total=n, words=f"{clock}  {words}".strip(),
            visible=keep or done < n,
        )  # fmt: skip
        wait = 1.0 if keep and done == n else EVERY_S
        if not self._console.is_terminal and now - self._said >= wait:
            self._said = now
            self.say(f"{what} {done}/{n}{', ' * bool(clock)}{clock}  {words}")

    def _dollars(self) -> str:
        """What was billed: for the questions that are counted, else by the whole command."""
        from ragbench.lms.calls import active  # slow, as above

        usd = self._billed.cost_usd if self._billed else active()[0].total.cost if active() else 0.0
        return "$ unknown" if usd is None or math.isinf(usd) else f"${usd:.4f}"


@dataclass
class _Phase:
    """What is counted: how many there are, and how many were done before it began."""

    task: TaskID
    n: int
    first: int
    begun: float
    seen: float = 0.0
    done: int = 0


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
