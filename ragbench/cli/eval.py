"""`ragbench eval`: run a program over questions and print the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, output_options
from ragbench.cli.grouping import group_options
from ragbench.cli.options import (
    answering_options,
    control_options,
    dry_run_option,
    program_options,
    shard_options,
    take_limits,
    to_config,
    whole_data_options,
)
from ragbench.cli.so_far import table_so_far


@command(
    "eval",
    examples=[
        "ragbench eval --program ircot",
        "ragbench eval --program self_rag --lm openai/gpt-4o-mini --dataset hotpotqa --hub",
        "ragbench eval --config ircot --limit 100 --max-cost 2",
        "ragbench eval --compiled compiled/FOLDER",
    ],
)
@program_options
@control_options
@whole_data_options
@answering_options
@group_options
@shard_options
@dry_run_option
@output_options
def eval_command(dry_run: bool, by_group: bool, closed_book: Path | None, **options: Any) -> None:
    """Run a program over questions and print the table.

    A record is written as soon as a question ends. Give the same command again to continue an
    interrupted run: finished questions are not asked again, failed ones are. Exits with 1 where
    all questions failed, with 3 where a limit stopped the run or no reply could be read.
    """
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.report.table import say
    from ragbench.experiments.report.tables import print_runs
    from ragbench.experiments.runs import evaluate, limited, ready, wanted

    by = wanted(by_group, closed_book)  # before anything is asked
    limits = take_limits(options)
    config = to_config(**options, whole=True)
    if dry_run:
        from ragbench.experiments.estimates import estimate_run

        run_context = ready(config)
        estimate = estimate_run(run_context)
        for line in estimate.lines():
            click.echo(line)
        return
    with limited(limits, config.folder()) as spent:
        with table_so_far(config.folder(), by), RunProgress() as progress:
            result = evaluate(
                config,
                on_start=progress.start,
                on_record=progress.update,
                on_prepare=progress.prepare,
            )
        if result.all_failed:
            say(f"all {len(result.records)} questions failed: the scores are of no answer")
        if result.records or spent.error is None:
            print_runs([result], by)  # here: where an LM is down, the block ends with its error
    if result.all_failed and not result.stopped_by:
        raise click.exceptions.Exit(1)
    if result.stopped_by or result.unreadable == len(result.records) > 0:
        raise click.exceptions.Exit(3)
