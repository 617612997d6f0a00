"""The progress of a run on stderr: count, rate, time left, dollars and scores so far.

On a terminal a bar, which is printed once more when it is finished; elsewhere a line every 30 s.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ragbench.context import current
from ragbench.ledger import current_ledger
from ragbench.record import Record, Totals

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
