"""`ragbench compare`: runs against the first, question by question."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from ragbench.cli.command import FiniteRange, command, option, output_options
from ragbench.cli.grouping import group_options

#: The exit code of a gate that refuses.
REFUSED = 4


@command(
    "compare",
    examples=[
        "ragbench compare runs/A runs/B",
        "ragbench compare runs/A runs/B runs/C --metric em --metric f1 --by-group",
        "ragbench compare runs/released runs/new --gate worse --margin 0.02",
    ],
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Metric to compare; repeat for more. [default: em, f1]")  # fmt: skip
@option("--margin", type=FiniteRange(min=0), group="Output",
        help="Difference too small to matter, in the metric's unit.")  # fmt: skip
@option("--gate", type=click.Choice(["worse", "not-better"]), group="Output",
        help="End with code 4 where a run is shown worse, or is not shown better.")  # fmt: skip
@option("--common", is_flag=True, group="Data",
        help="Compare only the questions that both runs have.")  # fmt: skip
@option("--exact", is_flag=True, group="Output",
        help="Use intervals that hold for any distribution of scores; most are wider.")  # fmt: skip
@group_options
@output_options
def compare_command(
    runs: tuple[Path, ...],
    metrics: tuple[str, ...],
    margin: float | None,
    gate: Literal["worse", "not-better"] | None,
    common: bool,
    exact: bool,
    by_group: bool,
    closed_book: Path | None,
) -> None:
    """Compare RUNS with the first: paired differences, intervals, tests and a verdict in words.

    Metrics that a judge or an attribution fills can be compared once `ragbench score` has filled
    them in all runs.
    """
    from ragbench.experiments.compare.paired import compare_all
    from ragbench.experiments.report.comparison import print_comparison
    from ragbench.experiments.runs import HEADLINE, reopen, wanted
    from ragbench.metrics import Method

    results = compare_all(
        [reopen(run) for run in runs],
        metrics=metrics or HEADLINE,
        common=common,
        by=wanted(by_group, closed_book),
        method=Method(margin=margin, exact=exact),
    )
    print_comparison(results)
    if gate:
        refused = [line for result in results if (line := result.refused(gate))]
        click.echo("\n".join(refused) or f"gate {gate}: passed", err=True)
        if refused:
            raise click.exceptions.Exit(REFUSED)
