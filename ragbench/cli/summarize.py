"""`ragbench summarize`: rebuild the summaries of runs from their records."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ragbench.cli.options import group_options


@click.command("summarize")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@group_options
def summarize_command(runs: tuple[Path, ...], by_group: bool, closed_book: Path | None) -> None:
    """Rebuild each RUN's summary.json from its records and print one table.

    Exits with 2 where a record could not be read; the others are counted all the same.
    """
    from ragbench.experiments.evaluate import reopen
    from ragbench.experiments.groups import groupings
    from ragbench.experiments.report import print_runs

    by = groupings(closed_book) if by_group or closed_book else None
    evaluations = [reopen(run) for run in runs]
    print_runs(evaluations, by)
    if any(evaluation.corrupt for evaluation in evaluations):
        sys.exit(2)
