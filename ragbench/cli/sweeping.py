"""`ragbench sweep` and `tune`: many runs of one matrix, or in search of the best knobs."""

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, option, output_options, stack
from ragbench.cli.options import (
    answering_options,
    dry_run_option,
    field_options,
    limit_options,
    log_option,
    program_options,
    spread_options,
    take_limits,
    take_settings,
    to_config,
    tune_data_options,
)
from ragbench.cli.progress import RunProgress, table_so_far
from ragbench.experiments.config import TuneConfig
from ragbench.experiments.report.table import say


@command(
    "sweep",
    examples=["ragbench sweep which.yaml --dry-run", "ragbench sweep which.yaml --max-cost 5"],
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
    from ragbench.experiments.report.sweep import print_estimate, print_swept
    from ragbench.experiments.runs import limited
    from ragbench.experiments.sweep import load_sweep, run_sweep

    given = {"workers": workers, "limit": limit, "processes": processes, "engine": engine}
    over = {name: value or None for name, value in given.items() if value is not None}
    sweep = load_sweep(file, out=out, over=over)
    if dry_run:
        print_estimate(sweep)
        return
    limits = take_limits(options)
    with limited(limits, sweep.folder), table_so_far(sweep.folder), RunProgress() as progress:
        swept = run_sweep(sweep, progress)
    print_swept(swept)
    raise click.exceptions.Exit(swept.exit_code)


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

    options["split"] = options["split"] or "validation"
    options["limit"] = 50 if options["limit"] is None else options["limit"]
    settings = take_settings(TuneConfig, "tune", options)
    limits = take_limits(options)
    config = to_config(**options)
    if dry_run:
        say(*estimate_tune(config, settings).lines())
        return
    folder = tune_folder(config)
    with limited(limits, folder):
        with table_so_far(folder), RunProgress() as progress:
            tuned = tune(config, settings, on_message=say, watch=progress)
        print_tuned(tuned)  # here: where an LM is down, the block ends with its error
    if tuned.stopped:
        say(tuned.stopped, err=True)
        raise click.exceptions.Exit(3)
