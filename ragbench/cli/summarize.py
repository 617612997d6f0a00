"""`ragbench summarize`: rebuild a run's summary from its records."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("summarize")
@click.argument("run", type=click.Path(path_type=Path))
def summarize_command(run: Path) -> None:
    """Rebuild RUN's summary.json from its records and print the table.

    Exits with 2 where a record could not be read; the others are counted all the same.
    """
    from ragbench.experiments.evaluate import reopen
    from ragbench.experiments.report import print_run

    evaluation = reopen(run)
    print_run(evaluation)
    if evaluation.corrupt:
        sys.exit(2)
