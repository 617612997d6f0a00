"""`ragbench compile`: compile a program's prompts with an optimizer."""

from __future__ import annotations

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


@click.command("compile")
@program_options
@compile_options
@click.option("--dry-run", is_flag=True, help="Print what it would spend, and stop.")
@click.option("--seconds-per-call", type=float, help="For the time in --dry-run.")
@data_options
@retriever_options
@lm_options
@run_options
@limit_options
def compile_command(
    seeds: int, dry_run: bool, seconds_per_call: float | None, **options: Any
) -> None:
    """Compile a program's prompts with an optimizer.

    Uses training and validation questions only. The budget is printed first. Give the same command
    again to continue a compile that was cut off. Use the result by `ragbench eval --compiled`.
    """
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.compile import compile_program, estimate, folder_of, plan
    from ragbench.experiments.limited import limited

    limits = take_limits(options)
    config, how = _configs(options)
    every = [_of_seed(how, number, seeds) for number in range(seeds)]
    if dry_run:
        for line in estimate(plan(config, every[0]), seconds_per_call=seconds_per_call):
            click.echo(line)
        if seeds > 1:
            click.echo(f"  and that {seeds} times, one for each seed")
        return
    folders = [folder_of(config, each) for each in every]
    with limited(limits, *folders), RunProgress() as progress:
        for each in every:
            compile_program(config, each, say=say, on_prepare=progress.prepare)


def _of_seed(how: Any, number: int, seeds: int) -> Any:
    out = how.out / f"seed-{number}" if how.out and seeds > 1 else how.out
    return how.model_copy(update={"optimizer_seed": how.optimizer_seed + number, "out": out})


def _configs(options: dict[str, Any]) -> tuple[Any, Any]:
    from ragbench.errors import ConfigError

    if options.get("split") is not None:
        raise ConfigError(
            f"compile uses the training and validation splits; leave out --split {options['split']}"
        )
    if options.get("limit") is not None:
        raise ConfigError("compile has two limits: give --train-limit and --val-limit")
    how = take_compile_config(options)
    return to_config(**options), how
