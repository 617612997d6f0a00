"""The progress bar of a run, with the running scores; on stderr, silent where that is a file."""

from __future__ import annotations

import sys
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ragbench.record import Record


class RunProgress:
    """Shows how many questions are done, with EM, F1 and failures so far."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[scores]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),  # what goes to a file or a pipe still does
        )
        self._task: Any = None
        self._preparing: Any = None
        self._em = self._f1 = 0.0
        self._n = self._failed = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def prepare(self, done: int, total: int) -> None:
        """Say how far the index, and what else all questions share, has come."""
        if self._preparing is None:
            self._preparing = self._bar.add_task("preparing", scores="")
        self._bar.update(self._preparing, completed=done, total=total, visible=done < total)

    def start(self, title: str, todo: int, done: int) -> None:
        """Say what is about to run: `todo` questions, `done` already finished."""
        again = f" ({done} finished before)" if done else ""
        self._console.print(
            f"{title}: {todo} questions to ask{again}", style="dim", markup=False, soft_wrap=True
        )
        self._task = self._bar.add_task("answering", total=todo, scores="")

    def update(self, record: Record, done: int, todo: int) -> None:
        """Count one record in."""
        self._n += 1
        self._failed += record.failure is not None
        self._em += record.scores.get("em") or 0.0
        self._f1 += record.scores.get("f1") or 0.0
        failed = f"  failed {self._failed}" if self._failed else ""
        text = f"EM {self._em / self._n:.3f}  F1 {self._f1 / self._n:.3f}{failed}"
        self._bar.update(self._task, completed=done, scores=text)
