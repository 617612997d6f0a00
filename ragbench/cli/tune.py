"""`ragbench tune`: search a program's knobs for the best trade-offs."""

from __future__ import annotations

from typing import Any

import click

from ragbench.cli.command import command, output_options, stack
from ragbench.cli.fields import field_options
from ragbench.cli.main import print_line
from ragbench.cli.options import (
    answering_options,
    dry_run_option,
    program_options,
    take_limits,
    to_config,
    tune_data_options,
)
from ragbench.cli.so_far import table_so_far
from ragbench.experiments.config import TuneConfig, option_of


@command(
    "tune",
    examples=[
        "ragbench tune --program ircot --objective f1,cost",
        "ragbench tune --program vanilla --space k=2:10 --only k --trials 30",
        "ragbench eval --compiled tuned/FOLDER/front/00",
    ],
)
@program_options
@stack(field_options(TuneConfig, "Search"))
@dry_run_option
@tune_data_options
@answering_options
@output_options
def tune_command(dry_run: bool, **options: Any) -> None:
    """Search a program's knobs with Optuna and keep the Pareto front.

    Uses validation questions (50 unless --limit says otherwise), or training questions with --split
    train. Give the same command again to continue, or with more --trials to search further. Use a
    result with `ragbench eval --compiled FOLDER`, on the test split.
    """
    from ragbench.experiments.report.compiled import print_tuned
    from ragbench.experiments.runs import limited
    from ragbench.experiments.tune import estimate_tune, tune, tune_folder
    from ragbench.knobs import resolve

    options["split"] = options["split"] or "validation"
    options["limit"] = 50 if options["limit"] is None else options["limit"]
    given = {
        name: options.pop(option_of(field).name or name)
        for name, field in TuneConfig.model_fields.items()
    }
    given = {name: value for name, value in given.items() if value not in (None, {})}
    settings = resolve(TuneConfig, "tune", given)
    limits = take_limits(options)
    config = to_config(**options)
    if dry_run:
        demonstrations, estimate = estimate_tune(config, settings)
        for line in (*demonstrations, *estimate.lines()):
            click.echo(line)
        return
    folder = tune_folder(config)
    with limited(limits, folder):
        with table_so_far(folder):
            tuned = tune(config, settings, on_message=print_line)
        print_tuned(tuned)  # here: where an LM is down, the block ends with its error
    if tuned.stopped:
        click.echo(tuned.stopped, err=True)
        raise click.exceptions.Exit(3)
