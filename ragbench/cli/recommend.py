"""`ragbench recommend`: which program for which questions, and whether a router would gain."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import FiniteRange, command, option, output_options


@command(
    "recommend",
    examples=[
        "ragbench recommend runs/*",
        "ragbench recommend runs/* --objective em --max-calls 4 -o policy.json",
        "ragbench eval --program router --policy policy.json --split test",
    ],
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--objective", default="f1", show_default=True, group="Search",
        help="Metric of accuracy to choose by.")  # fmt: skip
@option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", group="Limits",
        help="Maximum mean US dollars per question.")  # fmt: skip
@option("--max-calls", type=FiniteRange(min=0, min_open=True), metavar="N", group="Limits",
        help="Maximum mean LM calls per question.")  # fmt: skip
@option("--max-tokens", type=FiniteRange(min=0, min_open=True), metavar="N", group="Limits",
        help="Maximum mean tokens per question.")  # fmt: skip
@option("--common", is_flag=True, group="Data",
        help="Use only the questions that all of the runs have.")  # fmt: skip
@option("--seed", type=click.IntRange(min=0), default=0, show_default=True, group="Search",
        help="Seeds the folds.")  # fmt: skip
@option("-o", "--output", type=click.Path(path_type=Path), group="Output",
        help="Policy file to write, for `ragbench eval --policy`.")  # fmt: skip
@output_options
def recommend_command(
    runs: tuple[Path, ...], objective: str, max_cost: float | None, max_calls: float | None,
    max_tokens: float | None, common: bool, seed: int, output: Path | None,
) -> None:  # fmt: skip
    """Say which of the programs of RUNS to use, for all questions or by kind of question.

    Learns a short rule from the runs, which picks a program by what a question looks like, and
    tests it on questions that it was not learned from. Unless the rule is shown to gain over the
    best single program, that program is recommended. Calls no LM.
    """
    from ragbench.cli.main import print_line
    from ragbench.experiments.artifacts import write_policy
    from ragbench.experiments.compare import with_scores
    from ragbench.experiments.recommend import Limits, gather, make_policy, recommend
    from ragbench.experiments.report import label_runs, print_advice
    from ragbench.experiments.runs import reopen

    evaluations = [with_scores(reopen(run)) for run in runs]
    asked = gather(
        evaluations,
        objective,
        Limits(cost_usd=max_cost, calls=max_calls, tokens=max_tokens),
        labels=label_runs(evaluations),
        common=common,
    )
    advice = recommend(asked, seed=seed)
    print_advice(advice)
    if output is not None:
        policy = make_policy(advice)
        write_policy(policy, output)
        print_line(f"policy: {output}")
        if policy.not_runnable:
            print_line(f"it cannot be run: {policy.not_runnable}")
