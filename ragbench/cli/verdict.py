"""`ragbench verdict`: does compiling help? All arms by one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.main import say
from ragbench.cli.options import (
    compile_options,
    data_options,
    limit_options,
    lm_options,
    program_options,
    retriever_options,
    run_options,
    take_compile_config,
    take_limits,
    to_config,
)


@click.command("verdict")
@program_options
@compile_options
@click.option(
    "--equal-cost", is_flag=True, help="Also zero-shot with votes for the compiled arm's tokens."
)
@click.option("--report", "metrics", multiple=True, help="Metric; repeat. [default: em, f1]")
@click.option("--margin", type=click.FloatRange(min=0), help="Difference too small to matter.")
@click.option(
    "--show", type=click.IntRange(min=0), default=2, help="Questions fixed and broken to show."
)
@click.option("--read", type=click.Path(path_type=Path), help="Print a finished verdict's folder.")
@data_options
@retriever_options
@lm_options
@run_options
@click.option("--dry-run", is_flag=True, help="Print what it would spend, and stop.")
@limit_options
def verdict_command(
    seeds: int,
    equal_cost: bool,
    metrics: tuple[str, ...],
    margin: float | None,
    show: int,
    read: Path | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Does compiling help? Zero-shot, zero-shot with its answers' form repaired, and compiled.

    Compiles on training and validation questions, asks held-out ones, and compares arm with arm.
    Give the same command again to continue what was cut off.
    """
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.estimate import estimate_verdict
    from ragbench.experiments.limited import limited
    from ragbench.experiments.summary import HEADLINE
    from ragbench.experiments.verdict import folder_of, reread, run_verdict
    from ragbench.experiments.verdict_report import print_verdict

    if read is not None:
        print_verdict(reread(read), show=show)
        return
    how = take_compile_config(options, out=None)
    limits = take_limits(options)
    config = to_config(**options)
    if dry_run:
        for line in estimate_verdict(config, how, seeds=seeds):
            click.echo(line)
        return
    with limited(limits, folder_of(config, how)), RunProgress() as progress:
        verdict = run_verdict(
            config, how, seeds=seeds, equal_cost=equal_cost, metrics=metrics or HEADLINE,
            margin=margin, say=say, on_start=progress.start, on_record=progress.update,
        )  # fmt: skip
    print_verdict(verdict, show=show)
