"""`ragbench compare`: two runs, question by question."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import FiniteRange, command, option, output_options
from ragbench.cli.grouping import group_options


@command(
    "compare",
    examples=[
        "ragbench compare runs/A runs/B",
        "ragbench compare runs/A runs/B --metric em --metric f1 --by-group",
    ],
)
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
@option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    group="Output",
    help="Metric to compare; repeat for more. [default: em, f1]",
)
@option(
    "--margin",
    type=FiniteRange(min=0),
    group="Output",
    help="Difference too small to matter, to test for equivalence; in the metric's unit.",
)
@option(
    "--common", is_flag=True, group="Data", help="Compare only the questions that both runs have."
)
@option(
    "--exact",
    is_flag=True,
    group="Output",
    help="Use intervals that hold for any distribution of scores; most are wider.",
)
@group_options
@option(
    "--seed",
    type=int,
    default=0,
    group="Run",
    help="Seeds the sign-flip test. [default: 0]",
    show_default=False,
)
@output_options
def compare_command(
    run_a: Path,
    run_b: Path,
    metrics: tuple[str, ...],
    margin: float | None,
    common: bool,
    exact: bool,
    by_group: bool,
    closed_book: Path | None,
    seed: int,
) -> None:
    """Compare RUN_B with RUN_A: paired differences with intervals, tests and a verdict in words.

    Metrics that a judge or an attribution fills can be compared once `ragbench score` has filled
    them in both runs.
    """
    from ragbench.experiments.compare import compare, with_scores
    from ragbench.experiments.report import print_comparison
    from ragbench.experiments.runs import HEADLINE, reopen, wanted
    from ragbench.metrics import Method

    by = wanted(by_group, closed_book)
    a, b = (with_scores(reopen(run)) for run in (run_a, run_b))
    method = Method(margin=margin, exact=exact, seed=seed)
    result = compare(a, b, metrics=metrics or HEADLINE, common=common, by=by, method=method)
    print_comparison(result)
