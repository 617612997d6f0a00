"""`ragbench compiled` and `ragbench transfer`: compiled programs, and where else they help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, option, output_options
from ragbench.cli.main import print_line
from ragbench.cli.options import (
    data_source_options,
    limit_options,
    lm_setting_options,
    retriever_options,
    run_options,
    take_limits,
    to_config,
)
from ragbench.cli.so_far import table_so_far


@command("compiled", examples=["ragbench compiled", "ragbench compiled shipped"])
@click.argument("folder", type=click.Path(path_type=Path), default="compiled")
@output_options
def compiled_command(folder: Path) -> None:
    """List the compiled programs under FOLDER, by default `compiled`.

    `shipped` lists those that come with ragbench.
    """
    from ragbench.experiments.config import SHIPPED, SHIPPED_FOLDER
    from ragbench.experiments.report import find_programs, print_programs

    print_programs(find_programs(SHIPPED_FOLDER if str(folder) == SHIPPED else folder))


@command(
    "transfer",
    examples=[
        "ragbench transfer compiled/FOLDER --lm openai/gpt-4o-mini --lm local",
        "ragbench transfer compiled/FOLDER --dataset hotpotqa=dev.json",
    ],
)
@click.argument("artefact", type=click.Path(path_type=Path))
@option("--report", "metrics", multiple=True, group="Output", metavar="METRIC",
        help="Metric to compare; repeat for more. [default: em, f1]")  # fmt: skip
@option("--lm", "--model", "lms", multiple=True, group="Model", metavar="SPEC",
        help="LM; repeat for more. [default: local]")  # fmt: skip
@option(
    "--dataset", "data", multiple=True, metavar="NAME|NAME=FILE", group="Data",
    help="Data set; repeat for more. [default: synthetic]",
)  # fmt: skip
@data_source_options
@retriever_options
@lm_setting_options
@run_options
@limit_options
@output_options
def transfer_command(
    artefact: Path, metrics: tuple[str, ...], lms: tuple[str, ...], data: tuple[str, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Run the compiled program in the folder ARTEFACT with every --lm, on every --dataset.

    The same program without compiling is run beside it, and the two are compared in each place.
    """
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.compare import transfer, transfer_folder
    from ragbench.experiments.report import print_matrix
    from ragbench.experiments.runs import HEADLINE, limited

    limits = take_limits(options)
    config = to_config(**options)
    folder = transfer_folder(config, artefact)
    with limited(limits, folder), table_so_far(folder), RunProgress() as progress:
        cells = transfer(
            artefact, config, lms=lms or ("local",), data=data or ("synthetic",),
            metrics=metrics or HEADLINE, on_message=print_line, on_start=progress.start,
            on_record=progress.update, on_prepare=progress.prepare,
        )  # fmt: skip
    print_matrix(cells)
