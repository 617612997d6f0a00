"""Commands that read finished runs: tables, comparisons, advice, pages, exports and checks."""

import webbrowser
from importlib.resources import files
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from zipfile import ZipFile

import click

from ragbench.cli.command import (
    PATH,
    by_group_option,
    command,
    force_option,
    margin_option,
    metrics_option,
    option,
    output_options,
    runs_argument,
)
from ragbench.cli.printing import for_machines, print_table, say, show
from ragbench.experiments.report.table import Column, Table

_port_option = click.option("--port", type=click.IntRange(0, 65535), default=8765,
                            help="Port on 127.0.0.1; 0 takes a free one.")  # fmt: skip
_browser_option = click.option("--browser/--no-browser", default=True,
                               help="Open the page in a browser.")  # fmt: skip
_metric_option = click.option("--metric", default="f1", help="Metric of accuracy.")


@command("runs", examples=["ragbench runs", "ragbench runs verdicts/FOLDER --format csv"])
@click.argument("folder", type=PATH, default="runs")
@output_options
def runs_command(folder: Path) -> None:
    """List the runs under FOLDER, by default `runs`, the latest first."""
    from ragbench.experiments.report.run_list import run_list_report

    show(run_list_report(folder))


@command(
    "summarize",
    examples=[
        "ragbench summarize runs/A runs/B",
        "ragbench summarize runs/* --rows program --cols dataset --metric em,f1 --format latex",
    ],
)
@runs_argument
@by_group_option
@option("--rows", type=click.Choice(["program", "dataset", "lm", "retriever"]), group="Output",
        help="Print a paper's table with a row for each of these; needs --cols.")  # fmt: skip
@option("--cols", type=click.Choice(["program", "dataset", "lm", "retriever"]), group="Output",
        help="Columns of a paper's table; needs --rows.")  # fmt: skip
@option("--metric", default="em,f1", metavar="NAME,...", group="Output",
        help="Metrics of a paper's table.")  # fmt: skip
@option("--protocol", metavar="NAME", group="Output",
        help="Add the metrics of a published protocol (`ragbench list protocols`).")  # fmt: skip
@output_options
def summarize_command(
    runs: tuple[Path, ...],
    by_group: bool,
    rows: str | None,
    cols: str | None,
    metric: str,
    protocol: str | None,
) -> None:
    """Print one table of RUNS, computed from their records; nothing is written.

    With --rows and --cols it is a paper's table, in which runs of one row and column are pooled.
    The repeats of a run (`ragbench eval --repeats`) are pooled first, then listed. Exits with 2
    where a record could not be read; the others are counted all the same.
    """
    from ragbench.experiments.report.paper import paper_table
    from ragbench.experiments.report.repeats import pooled_report
    from ragbench.experiments.report.tables import runs_report
    from ragbench.experiments.runs.summary import reopen_arm
    from ragbench.experiments.score.protocols import get_protocol

    followed = get_protocol(protocol) if protocol is not None else None
    if (rows is None) != (cols is None):
        raise click.UsageError("a paper's table has rows and columns: give --rows and --cols")
    arms = list(map(reopen_arm, runs))
    evaluations = list(chain.from_iterable(arms))
    if rows is not None and cols is not None:
        print_table(paper_table(evaluations, rows, cols, metric.split(","), followed))
    else:
        show(pooled_report(arms))
        show(runs_report(evaluations, by_group, followed))
    if any(evaluation.records.damaged for evaluation in evaluations):
        raise click.exceptions.Exit(2)


#: The exit code of a gate that refuses.
REFUSED = 4


@command(
    "compare",
    examples=[
        "ragbench compare runs/A runs/B",
        "ragbench compare runs/A runs/B runs/C --metric em --metric f1",
        "ragbench compare runs/released runs/new --gate worse --margin 0.02",
    ],
)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@metrics_option
@margin_option
@option("--gate", type=click.Choice(["worse", "not-better"]), group="Output",
        help="End with code 4 where a run is shown worse, or is not shown better.")  # fmt: skip
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
    """Compare RUNS with the first: paired differences, intervals, tests and a verdict in words.

    Metrics that a judge or an attribution fills can be compared once `ragbench score` has filled
    them in all runs. A run that was asked several times (`ragbench eval --repeats`) is compared by
    all of its repeats, and what they are worth is said.
    """
    from ragbench.experiments.compare.against import compare_all
    from ragbench.experiments.report.comparison import comparison_report
    from ragbench.experiments.runs.summary import HEADLINE, reopen_arm

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
    examples=[
        "ragbench recommend runs/*",
        "ragbench recommend runs/* --metric em --by type",
    ],
)
@runs_argument
@option("--metric", default="f1", group="Search",
        help="Metric of accuracy to choose by.")  # fmt: skip
@option("--by", type=click.Choice(["type", "hops"]), group="Search",
        help="Also recommend a program for each type of question, or number of hops.")  # fmt: skip
@option("--common", is_flag=True, group="Data",
        help="Use only the questions that all of the runs have.")  # fmt: skip
@option("--worth", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05,
        group="Search",
        help="Smallest gain that justifies a more expensive program.")  # fmt: skip
@option("--include-unshown", is_flag=True, group="Search",
        help="Weigh runs too that read all passages or have a bare index.")  # fmt: skip
@output_options
def recommend_command(
    runs: tuple[Path, ...],
    metric: str,
    by: str | None,
    common: bool,
    worth: float,
    include_unshown: bool,
) -> None:
    """Recommend one of the programs of RUNS: the cheapest shown as good as the best mean.

    A cheaper program is advised if it is shown to be less than --worth below the best. If the
    questions do not tell, the command says so, and how many would. With --by, each group of
    questions gets its own advice from its own tests. The repeats of a run
    (`ragbench eval --repeats`) are pooled. Calls no LM.
    """
    from ragbench.experiments.recommend import advise
    from ragbench.experiments.recommend_by import advise_by
    from ragbench.experiments.report.choice import advice_report, group_advice_report
    from ragbench.experiments.report.repeats import label_arms
    from ragbench.experiments.runs.summary import reopen_arm

    arms = list(map(reopen_arm, runs))
    how: dict[str, Any] = {"labels": label_arms(arms), "common": common, "worth": worth}
    how["unshown"] = include_unshown
    show(advice_report(advise(arms, metric, **how)))
    if by is not None:
        show(group_advice_report(by, advise_by(arms, by, metric, **how)))


@command(
    "report",
    examples=[
        "ragbench report runs/* -o report.html",
        "ragbench report verdicts/ircot sweeps/depth tuned/react",
        "ragbench report runs/* --figures pdf -o figures",
    ],
)
@runs_argument
@click.option("-o", "--output", type=PATH,
        help="The HTML file to write; with --figures a folder.")  # fmt: skip
@click.option("--figures", type=click.Choice(["svg", "pdf"]),
        help="Write each plot alone, with its caption, in place of the page.")  # fmt: skip
@_metric_option
@force_option
def report_command(
    runs: tuple[Path, ...],
    output: Path | None,
    figures: Literal["svg", "pdf"] | None,
    metric: str,
    force: bool,
) -> None:
    """Write a page about RUNS: what to use, how sure that is, at what price, and every question.

    RUNS are folders of runs, verdicts, sweeps or tunes. The page is one file that opens from disk
    and needs no network. With --figures each of its plots is drawn for a paper (SVG or PDF) by a
    browser on this machine, beside a text with its caption: n, intervals and test.
    """
    from ragbench.experiments.report.page import make_board, write_figures, write_page
    from ragbench.outputs import Output

    if figures is not None:
        folder = output or Path("figures")
        for path in write_figures(make_board(runs, metric), folder, figures, force=force):
            say(str(path))
        return
    output = output or Path("report.html")
    Output(output, "report", force).check()
    board = make_board(runs, metric)
    size = write_page(board, output, force=force)
    say(f"{output}: {len(board.runs)} runs, {size / 1e6:.1f} MB")


@command("view", examples=["ragbench view runs/"])
@click.argument("folder", default="runs", type=PATH)
@_port_option
@_metric_option
@_browser_option
def view_command(folder: Path, port: int, metric: str, browser: bool) -> None:
    """Serve the page of every run in FOLDER until Ctrl-C; it follows runs that go on."""
    _serve(folder, port, metric, browser)


@command("demo", examples=["ragbench demo"])
@_port_option
@_browser_option
def demo_command(port: int, browser: bool) -> None:
    """Serve the page of four small recorded runs until Ctrl-C; no model is asked.

    They are vanilla, ircot and react, and vanilla compiled, over four synthetic questions, as the
    0.5B local model answered them: too few to say which is better, enough to see what is shown.
    """
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
    examples=[
        "ragbench export runs/* --to parquet -o runs.parquet",
        "ragbench export runs/A --to csv -o a.csv --metric recall@5",
    ],
)
@runs_argument
@option("--to", "target", required=True, group="Output", help="Format to write.",
        type=click.Choice(["parquet", "csv", "jsonl", "hotpotqa", "2wiki", "musique"]))  # fmt: skip
@option("-o", "--output", type=PATH, group="Output", help="File to write.")
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Add this metric to the stored scores; repeat for more.")  # fmt: skip
@force_option
def export_command(
    runs: tuple[Path, ...], target: str, output: Path | None, metrics: tuple[str, ...], force: bool
) -> None:
    """Write RUNS in the format of another tool, failed questions and their errors included.

    Parquet and CSV have a row per question, JSON lines each record whole; hotpotqa, 2wiki and
    musique are the prediction files of the official scripts.
    """
    from ragbench.cli.main import one_line
    from ragbench.experiments.export import export_runs

    say(one_line(export_runs(runs, target, output, metrics, force=force)))


@command("doctor", examples=["ragbench doctor runs/A"])
@click.argument("folders", nargs=-1, required=True, type=PATH)
@output_options
def doctor_command(folders: tuple[Path, ...]) -> None:
    """Check the FOLDERS of runs, compiled programs, verdicts, tunings and sweeps.

    Prints a line for each problem, with what to do about it; nothing is changed. Exits with 0 if
    there is none, with 1 if there are some, and with 2 if a folder is none of these.
    """
    from ragbench.cli.main import one_line
    from ragbench.experiments.doctor import examine, folders_under
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    wrong = 0
    rows = []
    for folder in [folder for root in folders for folder in folders_under(root)]:
        findings = list(examine(folder))
        wrong += len(findings)
        for path, problem in findings or [(folder, "nothing is wrong")]:
            rows.append({"folder": str(folder), "path": str(path), "finding": one_line(problem)})
            if not for_machines():
                say(one_line(f"{path}: {problem}"))
    if for_machines():
        print_table(Table("findings", [Column("folder"), Column("path"), Column("finding")], rows))
    raise click.exceptions.Exit(1 if wrong else 0)
