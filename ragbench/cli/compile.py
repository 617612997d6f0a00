"""`ragbench compile` and `compiled`: compile a program's prompts; list what was compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import FiniteRange, command, option, output_options
from ragbench.cli.main import print_line
from ragbench.cli.options import (
    answering_options,
    compile_options,
    corpus_options,
    dry_run_option,
    program_options,
    take_compile_config,
    take_limits,
    to_config,
)


@command(
    "compile",
    examples=[
        "ragbench compile --program self_rag --optimizer bootstrap",
        "ragbench compile --program vanilla --optimizer mipro --preset medium --dry-run",
        "ragbench eval --compiled compiled/FOLDER",
    ],
)
@program_options
@compile_options
@dry_run_option
@option("--seconds-per-call", type=FiniteRange(min=0, min_open=True), group="Limits",
        help="Mean seconds of an LM call, from which --dry-run estimates the time.")  # fmt: skip
@corpus_options
@answering_options
def compile_command(
    seeds: int, dry_run: bool, seconds_per_call: float | None, **options: Any
) -> None:
    """Compile a program's prompts with an optimizer.

    Only training and validation questions are used. The estimated cost is printed first. Give the
    same command again to continue a compile that was interrupted. Use the result with
    `ragbench eval --compiled FOLDER`.
    """
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.compile import (
        compile_folder,
        compile_program,
        estimate_compile,
        make_plan,
    )
    from ragbench.experiments.runs import limited

    limits = take_limits(options)
    config, settings = _configs(options)
    every = [_of_seed(settings, number, seeds) for number in range(seeds)]
    if dry_run:
        plan = make_plan(config, every[0])
        for line in estimate_compile(plan, seconds_per_call=seconds_per_call).lines():
            click.echo(line)
        if seeds > 1:
            click.echo(f"  times {seeds}, once for each seed")
        return
    folders = [compile_folder(config, each) for each in every]
    with limited(limits, *folders), RunProgress() as progress:
        for each in every:
            compile_program(config, each, on_message=print_line, on_prepare=progress.prepare)


def _of_seed(settings: Any, number: int, seeds: int) -> Any:
    out = settings.out / f"seed-{number}" if settings.out and seeds > 1 else settings.out
    return settings.model_copy(
        update={"optimizer_seed": settings.optimizer_seed + number, "out": out}
    )


def _configs(options: dict[str, Any]) -> tuple[Any, Any]:
    from ragbench.errors import ConfigError

    if options.get("split") is not None:
        raise ConfigError(
            f"compile uses the training and validation splits; leave out --split {options['split']}"
        )
    if options.get("limit") is not None:
        raise ConfigError("compile has two limits: give --train-limit and --val-limit")
    settings = take_compile_config(options)
    return to_config(**options), settings


@command("compiled", examples=["ragbench compiled", "ragbench compiled shipped"])
@click.argument("folder", type=click.Path(path_type=Path), default="compiled")
@output_options
def compiled_command(folder: Path) -> None:
    """List the compiled programs under FOLDER, by default `compiled`.

    `shipped` lists those that come with ragbench.
    """
    from ragbench.experiments.config import SHIPPED, SHIPPED_FOLDER
    from ragbench.experiments.report.compiled import find_programs, print_programs

    print_programs(find_programs(SHIPPED_FOLDER if str(folder) == SHIPPED else folder))
