"""`ragbench report`: runs as one HTML file, with charts and traces."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command


@command(
    "report",
    examples=[
        "ragbench report runs/* -o report.html",
        "ragbench report runs/ircot-* runs/react-* --export figures/",
    ],
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
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
@click.option(
    "--export", "--charts", "export", type=click.Path(path_type=Path),
    help="Also write every chart as SVG and PNG, and every table as LaTeX, to this folder.",
)  # fmt: skip
@click.option(
    "--traces", type=click.Path(path_type=Path),
    help="Folder for the steps of each question; keep it beside the page, which then loads them "
    "when a question is opened. Without it they are in the page.",
)  # fmt: skip
def report_command(
    runs: tuple[Path, ...],
    output: Path,
    metric: str,
    title: str,
    export: Path | None,
    traces: Path | None,
) -> None:
    """Write a page about RUNS: leaderboard, charts, and how each question was answered.

    The page opens from disk and needs no network. It is one file, unless --traces keeps
    the steps of the questions in a folder beside it.
    """
    from ragbench.experiments.records import check_output
    from ragbench.experiments.report.page import make_board, page_of, write_parts, write_traces
    from ragbench.experiments.runs import reopen

    check_output(output)
    board = make_board([reopen(run) for run in runs], metric)
    beside = None if traces is None else write_traces(board, traces, output)
    page = page_of(board, title=title, beside=beside)
    output.write_text(page, "utf-8")
    click.echo(f"{output}: {len(runs)} runs, {len(page.encode()) / 1e6:.1f} MB")
    if beside is not None:
        click.echo(f"{traces}: steps in {len(beside)} files; keep the folder beside the page")
    if export:
        charts, tables = write_parts(board, export)
        click.echo(f"{export}: {charts} charts as SVG and PNG, {tables} tables as LaTeX")
