"""`ragbench compare`: two runs, question by question."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("compare")
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="Repeat for more. [default: em, f1]")
@click.option("--margin", type=click.FloatRange(min=0), help="Difference too small to matter.")
@click.option("--common", is_flag=True, help="Leave out questions that only one run has.")
@click.option("--seed", type=int, default=0, help="Seeds the resampling.")
def compare_command(
    run_a: Path,
    run_b: Path,
    metrics: tuple[str, ...],
    margin: float | None,
    common: bool,
    seed: int,
) -> None:
    """Compare RUN_B with RUN_A: paired differences with intervals, tests and a verdict in words."""
    from ragbench.experiments.compare import compare
    from ragbench.experiments.compare_report import print_comparison
    from ragbench.experiments.evaluate import reopen
    from ragbench.experiments.summary import HEADLINE

    result = compare(
        reopen(run_a), reopen(run_b), metrics=metrics or HEADLINE, margin=margin, common=common,
        seed=seed,
    )  # fmt: skip
    print_comparison(result)
