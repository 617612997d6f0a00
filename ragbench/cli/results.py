"""Commands that read finished runs: comparisons, advice, pages and exports."""

import webbrowser
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from zipfile import ZipFile

import click

from ragbench.cli.command import (
    PATH,
    command,
    force_option,
    margin_option,
    metrics_option,
    option,
    output_options,
    runs_argument,
    with_runs,
)
from ragbench.cli.printing import say, show

#: Exit code if a gate refuses.
REFUSED = 4


@command(
    "compare",
    examples="""
ragbench compare runs/A runs/B
ragbench compare runs/A runs/B runs/C --metric em --metric f1
ragbench compare runs/released runs/new --gate worse --margin 0.02
""",
)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@metrics_option
@margin_option
@option("--gate", type=click.Choice(["worse", "not-better"]), group="Output",
        help="Exit with 4 if a run is significantly worse, or not better.")  # fmt: skip
@option("--common", is_flag=True, group="Data",
        help="Compare only the questions that both runs have.")  # fmt: skip
@output_options
def compare_command(
    runs: tuple[Path, ...],
    metrics: tuple[str, ...],
    margin: float | None,
    gate: Literal["worse", "not-better"] | None,
    common: bool,
) -> None:
    """Compare RUNS with the first: paired differences, intervals, tests and a verdict.

    To compare metrics of a judge or an attribution, run `ragbench score` on all runs first. A run
    with repeats (`ragbench eval --repeats`) is compared by all of its repeats.
    """
    from ragbench.experiments.compare.comparisons import check_gate, compare_all
    from ragbench.experiments.report.comparison import comparison_report
    from ragbench.experiments.runs.summary import HEADLINE, reopen_arm

    if gate:
        check_gate(metrics)
    results = compare_all(
        list(map(reopen_arm, runs)),
        metrics=metrics or HEADLINE,
        common=common,
        margin=margin,
    )
    show(comparison_report(results))
    if gate:
        refused = list(filter(None, (result.refused(gate) for result in results)))
        say(*(refused or [f"gate {gate}: passed"]), err=True)
        if refused:
            raise click.exceptions.Exit(REFUSED)


@command(
    "recommend",
    examples="""
ragbench recommend runs/*
ragbench recommend runs/* --metric em --by type
""",
)
@runs_argument
@option("--metric", default="f1", group="Search",
        help="Accuracy metric to choose by.")  # fmt: skip
@option("--by", type=click.Choice(["type", "hops"]), group="Search",
        help="Also recommend a program per question type or number of hops.")  # fmt: skip
@option("--common", is_flag=True, group="Data",
        help="Use only the questions that all runs have.")  # fmt: skip
@option("--min-gain", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05,
        group="Search",
        help="Smallest gain that justifies a more expensive program.")  # fmt: skip
@option("--include-degenerate", is_flag=True, group="Search",
        help="Include runs that read all passages or have a bare index.")  # fmt: skip
@output_options
def recommend_command(
    runs: tuple[Path, ...],
    metric: str,
    by: str | None,
    common: bool,
    min_gain: float,
    include_degenerate: bool,
) -> None:
    """Recommend the cheapest program of RUNS that is about as good as the best.

    A cheaper program is recommended if it is less than --min-gain below the best mean, by a test.
    If the questions do not decide, the output says how many would. With --by, each group of
    questions gets its own recommendation from its own tests. The repeats of a run (`ragbench eval
    --repeats`) are pooled. Calls no LM.
    """
    from ragbench.experiments.recommend import advise
    from ragbench.experiments.recommend_by import advise_by
    from ragbench.experiments.report.choice import advice_report, group_advice_report
    from ragbench.experiments.report.repeats import label_arms
    from ragbench.experiments.runs.summary import reopen_arm

    arms = list(map(reopen_arm, runs))
    how: dict[str, Any] = {"labels": label_arms(arms), "common": common, "min_gain": min_gain}
    how["degenerate"] = include_degenerate
    show(advice_report(advise(arms, metric, **how)))
    if by is not None:
        show(group_advice_report(by, advise_by(arms, by, metric, **how)))


@command(
    "report",
    examples="""
ragbench report runs/* -o report.html
ragbench report verdicts/ircot sweeps/depth tuned/react
ragbench report runs/* --figures pdf -o figures
ragbench report runs --serve
ragbench report --demo
""",
)
@click.argument("runs", nargs=-1, type=PATH)
@option("-o", "--output", type=PATH, group="Output",
        help="HTML file to write, or a folder with --figures. [default: report.html]")  # fmt: skip
@option("--figures", type=click.Choice(["svg", "pdf"]), group="Output",
        help="Write each plot with its caption instead of the page.")  # fmt: skip
@option("--metric", default="f1", group="Output", help="Accuracy metric.")
@force_option
@option("--serve", is_flag=True, group="Live page",
        help="Serve the page of a folder, by default `runs`, until Ctrl-C.")  # fmt: skip
@option("--demo", is_flag=True, group="Live page",
        help="Serve the page of six recorded runs; needs no model.")  # fmt: skip
@option("--port", type=click.IntRange(0, 65535), default=8765, group="Live page",
        help="Port on 127.0.0.1. 0: a free port.")  # fmt: skip
@option("--browser/--no-browser", default=True, group="Live page",
        help="Open the page in a browser.")  # fmt: skip
def report_command(
    runs: tuple[Path, ...],
    output: Path | None,
    figures: Literal["svg", "pdf"] | None,
    metric: str,
    force: bool,
    serve: bool,
    demo: bool,
    port: int,
    browser: bool,
) -> None:
    """Write a page about RUNS: the recommended program, the evidence, costs and all questions.

    RUNS are folders of runs, verdicts, sweeps or tunes. The page is one file that works offline.
    With
    --figures, a browser on this machine draws each plot for a paper (SVG or PDF), with its caption
    in
    a text file. With --serve, the page follows runs in progress.
    """
    from ragbench.experiments.report.page import make_board, write_figures, write_page
    from ragbench.outputs import Output

    if demo or serve:
        if output or figures or force or len(runs) > (not demo):
            raise click.UsageError("--serve takes one folder, --demo none; neither writes a file")
        if demo:
            _serve_demo(port, browser)
        else:
            _serve(runs[0] if runs else Path("runs"), port, metric, browser)
        return
    if not runs:
        raise click.UsageError("give the folders of runs, or --serve, or --demo")
    page = output or Path("report.html")
    if figures is None:
        Output(page, "report", force).check()
    board = make_board(with_runs(runs), metric)
    if figures is None:
        size = write_page(board, page, force=force)
        say(f"{page}: {len(board.runs)} runs, {size / 1e6:.1f} MB")
        return
    for path in write_figures(board, output or Path("figures"), figures, force=force):
        say(str(path))


def _serve_demo(port: int, browser: bool) -> None:
    """Serve six recorded runs: vanilla, ircot, react, lookahead, self_rag, vanilla compiled."""
    with TemporaryDirectory(prefix="ragbench-demo-") as folder:
        with (
            files("ragbench.cli").joinpath("demo.zip").open("rb") as packed,
            ZipFile(packed) as runs,
        ):
            runs.extractall(folder)
        _serve(Path(folder), port, "f1", browser)


def _serve(folder: Path, port: int, metric: str, browser: bool) -> None:
    from ragbench.experiments.report.page import make_server

    server = make_server(folder, port=port, metric=metric)
    address = f"http://127.0.0.1:{server.server_port}/"
    click.echo(f"{address} shows {folder}; Ctrl-C stops")
    if browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("stopped")
    finally:
        server.server_close()


@command(
    "export",
    examples="""
ragbench export runs/* --to parquet -o runs.parquet
ragbench export runs/A --to csv -o a.csv --metric recall@5
ragbench export runs/* --to bundle -o bundle.zip
""",
)
@runs_argument
@option("--to", "target", required=True, group="Output", help="Format to write.",
        type=click.Choice(["parquet", "csv", "jsonl", "hotpotqa", "2wiki", "musique",
                           "bundle"]))  # fmt: skip
@option("-o", "--output", type=PATH, group="Output", help="File to write.")
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Metric to add to the stored scores. Repeatable.")  # fmt: skip
@force_option
def export_command(
    runs: tuple[Path, ...], target: str, output: Path | None, metrics: tuple[str, ...], force: bool
) -> None:
    """Export RUNS for other tools, failed questions and their errors included.

    Parquet and CSV have one row per question, and JSON lines have complete records. hotpotqa, 2wiki
    and musique are the prediction files of the official scripts. A bundle contains records, cards,
    prompts and figures, for `ragbench verify`.
    """
    from ragbench.cli.main import one_line
    from ragbench.experiments.export import export_runs
    from ragbench.experiments.publish import publish

    if target == "bundle":
        if output is None or metrics:
            raise click.UsageError("--to bundle requires -o FILE and does not accept --metric")
        count = publish(runs, output, force=force)
        say(f"{output}: {count} runs; check it with `ragbench verify {output}`")
        return
    say(one_line(export_runs(runs, target, output, metrics, force=force)))
