"""`ragbench report`: runs as one HTML file, with tables, charts and traces."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, runs_argument


@command(
    "report",
    examples=[
        "ragbench report runs/* -o report.html",
        "ragbench report verdicts/ircot sweeps/depth tuned/react",
    ],
)
@runs_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="The HTML file to write.",
)
@click.option("--metric", default="f1", show_default=True, help="Metric of accuracy.")
@click.option("--title", default="ragbench report", show_default=True, help="Heading of the page.")
def report_command(runs: tuple[Path, ...], output: Path, metric: str, title: str) -> None:
    """Write a page about RUNS: what to use, how sure that is, at what price, and every question.

    RUNS are folders of runs, verdicts, sweeps or tunes. The page is one file that opens from disk
    and needs no network.
    """
    from ragbench.experiments.report.page import make_board, write_page
    from ragbench.experiments.store import check_output

    check_output(output)
    board = make_board(runs, metric)
    size = write_page(board, output, title=title)
    click.echo(f"{output}: {len(board.runs)} runs, {size / 1e6:.1f} MB")
