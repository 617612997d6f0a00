"""`ragbench export`: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, option, runs_argument


@command(
    "export",
    examples=[
        "ragbench export runs/* --to parquet -o runs.parquet",
        "ragbench export runs/A --to csv -o a.csv --metric recall@5",
        "ragbench export runs/A runs/B --to inspect -o logs/",
        "ragbench export runs/A --to mlflow -o mlflow/",
    ],
)
@runs_argument
@option(
    "--to",
    "target",
    type=click.Choice(["parquet", "csv", "jsonl", "inspect", "mlflow"]),
    required=True,
    group="Output",
    help="Format to write.",
)
@option("-o", "--output", type=click.Path(path_type=Path), group="Output",
        help="File to write; for inspect also a folder, for mlflow a folder. "
             "[default: none; for mlflow its tracking URI]")  # fmt: skip
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Add this metric to the stored scores; repeat for more.")  # fmt: skip
def export_command(
    runs: tuple[Path, ...], target: str, output: Path | None, metrics: tuple[str, ...]
) -> None:
    """Write RUNS in the format of another tool, failed questions and their errors included.

    Parquet and CSV have a row per question, JSON lines each record whole; `inspect` makes logs of
    inspect_ai, `mlflow` runs of MLflow. docs/export.md describes each.
    """
    from ragbench.cli.main import one_line
    from ragbench.experiments.export import export_runs

    click.echo(one_line(export_runs(runs, target, output, metrics)))
