"""`ragbench summarize`: the summaries of runs, computed from their records."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, output_options, runs_argument
from ragbench.cli.grouping import group_options


@command(
    "summarize",
    examples=[
        "ragbench summarize runs/A runs/B",
    ],
)
@runs_argument
@group_options
@output_options
def summarize_command(runs: tuple[Path, ...], by_group: bool, closed_book: Path | None) -> None:
    """Print one table of RUNS, computed from their records; nothing is written.

    Exits with 2 where a record could not be read; the others are counted all the same.
    """
    from ragbench.experiments.report.tables import print_runs
    from ragbench.experiments.runs import reopen, wanted

    by = wanted(by_group, closed_book)
    evaluations = [reopen(run) for run in runs]
    print_runs(evaluations, by)
    if any(evaluation.records.damaged for evaluation in evaluations):
        raise click.exceptions.Exit(2)
