"""`ragbench errors`: why answers are wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ragbench.cli.asking import asking_options, make_asking
from ragbench.cli.command import command, option, output_options, runs_argument
from ragbench.cli.grouping import closed_book_option
from ragbench.cli.options import log_option, take_limits
from ragbench.cli.so_far import so_far, until_stopped


@command(
    "errors",
    examples=[
        "ragbench errors runs/A",
        "ragbench errors runs/A --cause reading --show 5",
    ],
)
@runs_argument
@option(
    "--show",
    type=click.IntRange(min=0),
    default=3,
    group="Output",
    help="Number of examples to show of each cause; 0 for none.",
)
@option(
    "--cause",
    metavar="NAME",
    group="Output",
    help="Show examples of this cause only, such as reading or reading/partial.",
)
@option("--metric", default="em", metavar="NAME", group="Output",
        help="Metric by which an answer is wrong: less than 1. [default: em]",
        show_default=False)  # fmt: skip
@closed_book_option
@option("--judge", "judge_lm", metavar="LM", group="Judge",
              help="LM that decides the causes that rules cannot.")  # fmt: skip
@option(
    "--allow-self-judge",
    is_flag=True,
    group="Judge",
    help="Allow a model to explain its own answers.",
)
@asking_options
@log_option
@output_options
def errors_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Print the causes of each RUN's wrong answers, and examples to read.

    Every wrong answer has one cause, found by rules from its record alone; with --judge, a model
    decides those that rules cannot, and they are marked. A judge's verdicts count where the run was
    scored with one.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.errors import Errors, errors_of, print_errors
    from ragbench.lms.calls import spending

    asking = make_asking(options, options["judge_lm"], "explaining")
    if options["batch"] and asking is None:
        raise ConfigError("--batch needs a model to ask; give --judge LM")
    cause = options["cause"]
    summaries: list[Errors] = []
    printed = partial(print_errors, show=options["show"], cause=cause)
    with spending(take_limits(options)) as spent, so_far(summaries, printed):
        for run in until_stopped(runs):
            summaries.append(
                errors_of(
                    run,
                    asking=asking,
                    allow_self=options["allow_self_judge"],
                    closed_book=options["closed_book"],
                    metric=options["metric"],
                )
            )
    printed(summaries)
    if spent.stopped_by:
        click.echo(
            f"stopped by {spent.stopped_by}; give the same command again to continue", err=True
        )
        raise click.exceptions.Exit(3)
