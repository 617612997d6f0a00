"""`ragbench runs`: the runs in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, output_options
from ragbench.experiments.report.run_list import print_run_list


@command("runs", examples=["ragbench runs", "ragbench runs verdicts/FOLDER --format csv"])
@click.argument("folder", type=click.Path(path_type=Path), default="runs")
@output_options
def runs_command(folder: Path) -> None:
    """List the runs under FOLDER, by default `runs`, the latest first."""
    print_run_list(folder)
