"""`ragbench sweep`: run a matrix of programs, retrievers, LMs, data sets, optimizers and seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ragbench.cli.options import limit_options, log_option, take_limits


@click.command("sweep")
@click.argument("file")
@click.option("--out", type=click.Path(path_type=Path), help="Folder. [default: sweeps/<FILE>]")
@click.option("--workers", type=int, help="Questions answered at once. [default: the file's]")
@click.option("--limit", type=int, help="First questions; 0 for all. [default: the file's]")
@click.option("--dry-run", is_flag=True, help="Print the cells and what they would spend; stop.")
@limit_options
@log_option
def sweep_command(
    file: str, out: Path | None, workers: int | None, limit: int | None, dry_run: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Run every cell of a sweep FILE, one after another, and compare them.

    Every cell is checked before anything is asked. One that fails does not touch the others; give
    the same command again to try it again and to continue what was cut off. Exits with 1 where a
    cell failed and 3 where a limit ended the sweep.
    """
    from ragbench.cli.sweep_progress import SweepProgress
    from ragbench.experiments.limited import limited
    from ragbench.experiments.sweep import run_sweep
    from ragbench.experiments.sweep_report import print_estimate, print_swept
    from ragbench.experiments.sweep_spec import load_sweep

    given = {"workers": workers, "limit": limit}
    over = {name: value or None for name, value in given.items() if value is not None}
    sweep = load_sweep(file, out=out, over=over)
    if dry_run:
        print_estimate(sweep)
        return
    with limited(take_limits(options), sweep.folder), SweepProgress(sweep.cells) as progress:
        swept = run_sweep(sweep, progress)
    print_swept(swept)
    sys.exit(swept.exit_code)
