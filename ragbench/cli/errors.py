"""`ragbench errors`: why answers are wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ragbench.cli.asking import asking_options, make_asking
from ragbench.cli.options import closed_book_option, log_option, take_limits


@click.command("errors")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--show", type=click.IntRange(min=0), default=0, help="Examples of each cause.")
@click.option("--cause", help="Examples of this cause alone, such as reading or reading/partial.")
@closed_book_option
@click.option("--judge", "judge_lm", metavar="LM",
              help="LM that decides the causes which need meaning, not strings.")  # fmt: skip
@click.option("--allow-self-judge", is_flag=True, help="Let a model explain its own answers.")
@asking_options
@log_option
def errors_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Print the causes of each RUN's wrong answers, and examples to read.

    Every wrong answer has one cause, found by rules from its record alone; with --judge, a model
    decides those that rules cannot, and they are marked. A judge's verdicts count where the run was
    scored with one.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.errors_report import errors_of, print_errors
    from ragbench.lms.limits import spending

    asking = make_asking(options, options["judge_lm"], "explaining")
    if options["batch"] and asking is None:
        raise ConfigError("--batch needs a model to ask; give --judge LM")
    with spending(take_limits(options)) as spent:
        found = [
            errors_of(
                run,
                asking=asking,
                allow_self=options["allow_self_judge"],
                closed_book=options["closed_book"],
            )
            for run in runs
        ]
    cause = options["cause"]
    print_errors(found, show=options["show"] or (3 if cause else 0), cause=cause)
    if spent.stopped_by:
        click.echo(f"stopped by {spent.stopped_by}; the same command continues", err=True)
        sys.exit(3)
