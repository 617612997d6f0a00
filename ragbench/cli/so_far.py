"""The table of what is finished, for commands that Ctrl-C ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def table_so_far(folder: Path, by: Any = None) -> Iterator[None]:
    """Where Ctrl-C ends the block, print the table of the runs in `folder` before it goes on.

    These are the run that `folder` is, or those in it: arms, cells, trials. `by` are breakdowns.
    """
    try:
        yield
    except KeyboardInterrupt:
        _print(folder, by)
        raise


def _print(folder: Path, by: Any) -> None:
    from ragbench.errors import RunError
    from ragbench.experiments.report import print_runs
    from ragbench.experiments.runs import reopen

    runs = []
    for path in sorted(folder.rglob("config.json"), key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(RunError):  # it was interrupted before it had begun
            runs.append(reopen(path.parent))
    if runs := [run for run in runs if run.records]:
        print_runs(runs, by)
