"""`ragbench merge`: the shards of a run, put together."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, option, output_options


@command(
    "merge",
    examples=[
        "ragbench merge runs/shards/NAME/* -o runs/NAME",
    ],
)
@click.argument("shards", nargs=-1, required=True, type=click.Path(path_type=Path))
@option(
    "--out", "-o", type=click.Path(path_type=Path), required=True, metavar="RUN",
    help="Folder for the whole run.",
)  # fmt: skip
@output_options
def merge_command(shards: tuple[Path, ...], out: Path) -> None:
    """Put the SHARDS of a run (`ragbench eval --shard I/N`) together, and print the table.

    The shards stay as they are. `ragbench eval` without --shard, with the same settings and --out,
    asks what is missing. To score the whole run, give `ragbench score`.
    """
    from ragbench.experiments.report import print_runs
    from ragbench.experiments.runs import merge, reopen

    merge(shards, out)
    print_runs([reopen(out)])
