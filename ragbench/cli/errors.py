"""`ragbench errors`: why answers are wrong."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("errors")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--show", type=click.IntRange(min=0), default=0, help="Examples of each cause.")
@click.option("--cause", help="Examples of this cause alone, such as reading or reading/partial.")
def errors_command(runs: tuple[Path, ...], show: int, cause: str | None) -> None:
    """Print the causes of each RUN's wrong answers, and examples to read.

    Every wrong answer has one cause, found by rules from its record alone. A judge's verdicts count
    where the run was scored with one.
    """
    from ragbench.experiments.errors_report import errors_of, print_errors

    print_errors([errors_of(run) for run in runs], show=show or (3 if cause else 0), cause=cause)
