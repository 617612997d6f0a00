"""Progress of a long command on stderr: a bar, or a line every 30 s if not a terminal."""

from __future__ import annotations

import math
import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from ragbench.experiments.progress import ProgressListener
from ragbench.experiments.report.table import printable
from ragbench.record import Record, Totals, billed

#: Seconds between two lines if stderr is not a terminal.
EVERY_S = 30.0
#: Least time between two states of the bar.
_REFRESH_S = 0.1


class RunProgress(ProgressListener):
    """Progress of the current work: count, time left, rate, dollars and scores.

    `making` is the default name of the work.
    """

    def __init__(self, making: str = "preparing", console: Console | None = None) -> None:
        self._making, self._console = making, console or Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            console=self._console,
            disable=not self._console.is_terminal or self._console.is_dumb_terminal,
            redirect_stdout=sys.stdout.isatty(),  # not if redirected to a file or a pipe
        )
        self._bar = self._bars.add_task("", words="", visible=False)
        self._restart("", 0)
        self._seen = self._begun

    def _restart(self, phase: str, todo: int) -> None:
        self._phase = (phase, todo)
        self._done = 0
        self._begun = self._said = time.monotonic()
        self._first = 0  # done before the rate is measured
        self._billed = Totals()
        self._failed = 0
        self._scores = {"em": 0.0, "f1": 0.0}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar, so that a table can be printed."""
        self._bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(Text(printable(line)), style="dim", soft_wrap=True)

    def prepare(self, done: int, total: int, work: str = "") -> None:
        """Show the progress of the index and other shared work.

        Args:
            done: Number of steps done.
            total: Number of all steps.
            work: Name of the work. Empty: that of the constructor.
        """
        from ragbench.ledger import current_ledger  # needs DSPy, which is slow to import

        ledger = current_ledger()
        usd = ledger.billed.cost_usd if ledger else _command_cost()
        self._show(work or self._making, done, total, usd, "", keep=False)

    def start(self, title: str, todo: int, done: int) -> None:
        """Start the count of questions.

        Args:
            title: Line to print above the count. Empty: none.
            todo: Number of questions to ask.
            done: Number of questions that earlier commands finished.
        """
        if title:
            again = f" ({done} finished before)" if done else ""
            self.say(f"{title}: {todo} questions to ask{again}")
        self._restart("answering", todo)

    def update(self, record: Record, done: int, todo: int) -> None:
        """Add one record to the count, scores and cost.

        Args:
            record: The record.
            done: Number of questions done, this one included.
            todo: Number of all questions of the command.
        """
        self._billed += billed(record.ledger.calls)
        self._failed += record.failure is not None
        for name in self._scores:
            self._scores[name] += record.scores.get(name) or 0.0
        if 1 < done < todo and time.monotonic() - self._seen < _REFRESH_S:
            return
        figures = [f"{name.upper()} {total / done:.3f}" for name, total in self._scores.items()]
        details = "  ".join(figures)
        if self._failed:
            details += f"  failed {self._failed}"
        self._show("answering", done, todo, self._billed.cost_usd, details)

    def count(self, work: str, done: int, total: int, details: str = "") -> None:
        """Show the progress of other work, such as trials or judge replies.

        Args:
            work: Name of the work.
            done: Number of steps done.
            total: Number of all steps.
            details: Text at the end of the line.
        """
        self._show(work, done, total, _command_cost(), details)

    def _show(
        self, work: str, done: int, n: int, usd: float | None, details: str, *, keep: bool = True
    ) -> None:
        now = time.monotonic()
        if (work, n) != self._phase or done < self._done:
            self._phase = work, n
            # Questions of an earlier command do not count for the rate.
            self._first, self._begun = (done, now) if done > 1 else (0, self._seen)
        self._seen = now
        self._done = done
        rate = (done - self._first) / max(now - self._begun, 1e-3)
        pace = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
        seconds_left = (n - done) / rate if rate else 0.0
        clock = ""
        if seconds_left:
            clock = f"{seconds_left // 60:.0f}:{seconds_left % 60:02.0f} left"
        dollars = "$ unknown"
        if usd is not None and not math.isinf(usd):
            dollars = f"${usd:.4f}"
        words = "  ".join(filter(None, (pace, dollars, details)))
        self._bars.update(
            self._bar, description=work, completed=done, total=n, visible=keep or done < n,
            words=f"{clock}  {words}".strip(),
        )  # fmt: skip
        wait = 1.0 if keep and done == n else EVERY_S
        if not self._console.is_terminal and now - self._said >= wait:
            self._said = now
            self.say(f"{work} {done}/{n}{', ' if clock else ''}{clock}  {words}")


def _command_cost() -> float | None:
    """Return the billed cost of the whole command in US dollars, or None if unknown."""
    from ragbench.lms.calls import active  # slow, as above

    if active():
        return active()[0].total.cost
    return 0.0
