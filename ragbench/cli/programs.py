"""`ragbench programs` and `ragbench transfer`: compiled programs, and where else they help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.main import say
from ragbench.cli.options import (
    data_source_options,
    limit_options,
    lm_setting_options,
    retriever_options,
    run_options,
    take_limits,
    to_config,
)


@click.command("programs")
@click.argument("folder", type=click.Path(path_type=Path), default="compiled")
def programs_command(folder: Path) -> None:
    """List the compiled programs under FOLDER, by default `compiled`."""
    from ragbench.experiments.library import find_programs, print_programs

    print_programs(find_programs(folder))


@click.command("transfer")
@click.argument("artefact", type=click.Path(path_type=Path))
@click.option("--report", "metrics", multiple=True, help="Metric; repeat. [default: em, f1]")
@click.option("--lm", "lms", multiple=True, help="Repeat for more. [default: local]")
@click.option(
    "--dataset",
    "data",
    multiple=True,
    metavar="NAME|NAME=FILE",
    help="Repeat for more. [default: synthetic]",
)
@data_source_options
@retriever_options
@lm_setting_options
@run_options
@limit_options
def transfer_command(
    artefact: Path, metrics: tuple[str, ...], lms: tuple[str, ...], data: tuple[str, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Ask one compiled program, and the same not compiled, on every --lm over every --dataset."""
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.limited import limited
    from ragbench.experiments.summary import HEADLINE
    from ragbench.experiments.transfer import folder_of, print_matrix, transfer

    limits = take_limits(options)
    config = to_config(**options)
    with limited(limits, folder_of(config, artefact)), RunProgress() as progress:
        cells = transfer(
            artefact, config, lms=lms or ("local",), data=data or ("synthetic",),
            metrics=metrics or HEADLINE, say=say, on_start=progress.start,
            on_record=progress.update,
        )  # fmt: skip
    print_matrix(cells)
