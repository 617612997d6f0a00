"""`ragbench recommend`: which program to use, and whether a router would gain."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import FiniteRange, command, option, output_options, runs_argument


@command(
    "recommend",
    examples=[
        "ragbench recommend runs/*",
        "ragbench recommend runs/* --metric em --max-calls 4",
        "ragbench recommend runs/* --router -o policy.json",
        "ragbench eval --program router --policy policy.json --split test",
    ],
)
@runs_argument
@option("--metric", default="f1", show_default=True, group="Search",
        help="Metric of accuracy to choose by.")  # fmt: skip
@option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", group="Limits",
        help="Maximum mean US dollars per question.")  # fmt: skip
@option("--max-calls", type=FiniteRange(min=0, min_open=True), metavar="N", group="Limits",
        help="Maximum mean LM calls per question.")  # fmt: skip
@option("--max-tokens", type=FiniteRange(min=0, min_open=True), metavar="N", group="Limits",
        help="Maximum mean tokens per question.")  # fmt: skip
@option("--common", is_flag=True, group="Data",
        help="Use only the questions that all of the runs have.")  # fmt: skip
@option("--router", is_flag=True, group="Search",
        help="Also learn a router: a program chosen by a question's wording.")  # fmt: skip
@option("--seed", type=click.IntRange(min=0), default=0, show_default=True, group="Search",
        help="Seeds the folds in which the router is tested.")  # fmt: skip
@option("-o", "--output", type=click.Path(path_type=Path), group="Output",
        help="Policy file to write, for `ragbench eval --policy`; needs --router.")  # fmt: skip
@output_options
def recommend_command(
    runs: tuple[Path, ...], metric: str, max_cost: float | None, max_calls: float | None,
    max_tokens: float | None, common: bool, router: bool, seed: int, output: Path | None,
) -> None:  # fmt: skip
    """Say which of the programs of RUNS to use: the cheapest not shown worse than the best mean.

    The best mean is tested against every cheaper program over the same questions. With --router, a
    short rule is learned as well, which picks a program by what a question looks like; it is tested
    on questions that it was not learned from, and recommended where it is shown to gain. Calls no
    LM.
    """
    from ragbench.cli.main import print_line
    from ragbench.experiments.artifacts import write_policy
    from ragbench.experiments.recommend import Limits, advise, learn_router, make_policy
    from ragbench.experiments.report.advice import print_advice
    from ragbench.experiments.report.tables import label_runs
    from ragbench.experiments.runs import reopen

    if output is not None and not router:
        raise click.UsageError("a policy is a router's: give --router with -o")
    evaluations = [reopen(run) for run in runs]
    limits = Limits(cost_usd=max_cost, calls=max_calls, tokens=max_tokens)
    labels = label_runs(evaluations)
    advice = advise(evaluations, metric, labels=labels, limits=limits, common=common)
    learned = learn_router(advice, seed=seed) if router else None
    print_advice(advice, learned)
    if output is not None and learned is not None:
        write_policy(make_policy(advice, learned, seed=seed), output)
        print_line(f"policy: {output}")
