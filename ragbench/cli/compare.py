"""`ragbench compare`: two runs, question by question."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.options import group_options


@click.command("compare")
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="Repeat for more. [default: em, f1]")
@click.option("--margin", type=click.FloatRange(min=0), help="Difference too small to matter.")
@click.option("--common", is_flag=True, help="Leave out questions that only one run has.")
@group_options
@click.option("--seed", type=int, default=0, help="Seeds the resampling.")
def compare_command(
    run_a: Path,
    run_b: Path,
    metrics: tuple[str, ...],
    margin: float | None,
    common: bool,
    by_group: bool,
    closed_book: Path | None,
    seed: int,
) -> None:
    """Compare RUN_B with RUN_A: paired differences with intervals, tests and a verdict in words.

    Metrics that a judge or an attribution fills can be compared once `ragbench score` has filled
    them in both runs.
    """
    from ragbench.experiments.compare import compare, with_scores
    from ragbench.experiments.compare_report import print_comparison
    from ragbench.experiments.evaluate import reopen
    from ragbench.experiments.groups import groupings
    from ragbench.experiments.summary import HEADLINE

    by = groupings(closed_book) if by_group or closed_book else None
    a, b = (with_scores(reopen(run)) for run in (run_a, run_b))
    result = compare(
        a, b, metrics=metrics or HEADLINE, margin=margin, common=common, seed=seed, by=by
    )
    print_comparison(result)
