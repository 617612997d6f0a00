"""`ragbench eval`: run a program over questions and print the table."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from ragbench.cli.options import (
    data_options,
    group_options,
    limit_options,
    lm_options,
    program_options,
    retriever_options,
    run_options,
    take_limits,
    to_config,
)


@click.command("eval")
@program_options
@click.option("--form", is_flag=True, default=None, help="Repair the answer's form; a control.")
@click.option("--votes", type=int, help="Answers per question; the most common counts. A control.")
@data_options
@retriever_options
@lm_options
@run_options
@group_options
@click.option("--dry-run", is_flag=True, help="Print what it would spend, and stop.")
@limit_options
def eval_command(dry_run: bool, by_group: bool, closed_book: Path | None, **options: Any) -> None:
    """Run a program over questions and print the table.

    Every question leaves a record as it ends. Give the same command again to continue a run that
    was cut off: a finished question is never asked twice, a failed one is asked again.
    """
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.estimate import estimate_run, keep_estimate
    from ragbench.experiments.evaluate import evaluate, ready
    from ragbench.experiments.groups import groupings
    from ragbench.experiments.limited import limited
    from ragbench.experiments.report import print_runs

    by = groupings(closed_book) if by_group or closed_book else None  # before anything is asked
    limits = take_limits(options)
    config = to_config(**options)
    if dry_run:
        bench = ready(config)
        found = estimate_run(bench)
        keep_estimate(bench, found)
        for line in found.lines():
            click.echo(line)
        return
    with limited(limits, config.folder()) as spent:
        try:
            with RunProgress() as progress:
                result = evaluate(
                    config,
                    on_start=progress.start,
                    on_record=progress.update,
                    on_prepare=progress.prepare,
                )
        except KeyboardInterrupt:
            _show_so_far(config.folder(), by)
            raise
        if result.records or spent.error is None:
            print_runs([result], by)  # here: where an LM is down, the block ends with its error
    if result.stopped_by:
        sys.exit(3)


def _show_so_far(folder: Path, by: Any) -> None:
    """Print the table of what the run in `folder` came to, if that is anything."""
    from ragbench.errors import RunError
    from ragbench.experiments.evaluate import reopen
    from ragbench.experiments.report import print_runs

    with contextlib.suppress(RunError):  # it was interrupted before it had begun
        found = reopen(folder)
        if found.records:
            print_runs([found], by)
