"""What is there so far, for commands that Ctrl-C ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ragbench import stopping

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
