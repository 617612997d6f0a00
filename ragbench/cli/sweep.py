"""`ragbench sweep`: run a matrix of programs, retrievers, LMs, data sets, optimizers and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, option, output_options
from ragbench.cli.options import (
    dry_run_option,
    limit_options,
    log_option,
    spread_options,
    take_limits,
)
from ragbench.cli.so_far import table_so_far


@command(
    "sweep",
    examples=[
        "ragbench sweep which.yaml --dry-run",
        "ragbench sweep which.yaml --max-cost 5",
    ],
)
@click.argument("file")
@option("--out", type=click.Path(path_type=Path), group="Run",
        help="Folder for the results. [default: sweeps/ and the file's name]")  # fmt: skip
@option("--workers", "--num-threads", "workers", type=int, group="Run",
        help="Questions answered at once. [default: the file's]")  # fmt: skip
@option("--limit", type=int, group="Data",
        help="Number of questions, from the start of the split; 0 for all. "
             "[default: the file's]")  # fmt: skip
@spread_options
@dry_run_option
@limit_options
@log_option
@output_options
def sweep_command(
    file: str, out: Path | None, workers: int | None, limit: int | None, dry_run: bool,
    processes: int | None, engine: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Run every cell of a sweep FILE, one after another, and compare them.

    All cells are checked before the first call. A cell that fails does not affect the others; give
    the same command again to retry it and to continue after an interruption. Exits with 1 where a
    cell failed, and with 3 where a limit stopped the sweep.
    """
    from ragbench.cli.sweep_progress import SweepProgress
    from ragbench.experiments.report.sweep import print_estimate, print_swept
    from ragbench.experiments.runs import limited
    from ragbench.experiments.sweep import load_sweep, run_sweep

    given = {"workers": workers, "limit": limit, "processes": processes, "engine": engine}
    over = {name: value or None for name, value in given.items() if value is not None}
    sweep = load_sweep(file, out=out, over=over)
    if dry_run:
        print_estimate(sweep)
        return
    progress = SweepProgress(sweep.cells)
    with limited(take_limits(options), sweep.folder), table_so_far(sweep.folder), progress:
        swept = run_sweep(sweep, progress)
    print_swept(swept)
    raise click.exceptions.Exit(swept.exit_code)
