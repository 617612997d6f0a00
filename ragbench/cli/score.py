"""`ragbench score`: add scores to finished runs, from their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.asking import asking_options, make_asking
from ragbench.cli.command import command, option, output_options, runs_argument
from ragbench.cli.grouping import closed_book_option
from ragbench.cli.options import log_option, take_limits
from ragbench.cli.so_far import so_far, until_stopped

RULES = ("ragbench", "arag", "linearrag", "grounding")


@command(
    "score",
    examples=[
        "ragbench score runs/A --metric recall@5",
        "ragbench score runs/A --judge openai/gpt-4o-mini --protocol arag --max-cost 1",
    ],
)
@runs_argument
@option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    group="Output",
    help="Metric to compute; repeat for more. [default: the standard ones]",
)
@option(
    "--protocol",
    metavar="NAME",
    group="Output",
    help="Scoring protocol; see `ragbench list protocols`.",
)
@closed_book_option
@option("--judge", "judge_lm", metavar="LM", group="Judge", help="LM that judges the answers.")
@option("--judge-rule", type=click.Choice(RULES),
              group="Judge",
              help="Rule for the judge. [default: the protocol's, else ragbench]")  # fmt: skip
@option(
    "--repeats",
    type=click.IntRange(1, 10),
    default=1,
    group="Judge",
    help="Verdicts to ask for per answer. [default: 1]",
    show_default=False,
)
@option("--labelled", group="Judge", type=click.IntRange(min=0), default=300,
        help="Claims with known labels to test a judge of claims on; 0 for none.")  # fmt: skip
@option(
    "--allow-self-judge",
    is_flag=True,
    group="Judge",
    help="Allow a model to judge its own answers.",
)
@option(
    "--embedder",
    default="local",
    group="Judge",
    metavar="SPEC",
    help="Embedder for the answer similarity of the protocol graphrag-bench. [default: local]",
    show_default=False,
)
@option("--attribute", "attribute_lm", metavar="LM", group="Judge",
              help="LM that names the sentences (2Wiki: facts) behind each answer.")  # fmt: skip
@option("--dry-run", is_flag=True, group="Limits", help="Print the estimated cost, and stop.")
@asking_options
@log_option
@output_options
def score_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Score each RUN from its records; the model that answered is not asked again.

    Writes scores.json, and every score to the run's database. The judge's replies are kept there
    too: the same command continues after an interruption and asks nothing twice.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.scores import print_scores
    from ragbench.experiments.score.estimate import estimate_scoring
    from ragbench.experiments.score.scoring import JudgeRequest, Scored, ScoreRequest, score_run
    from ragbench.lms.calls import spending

    asking = make_asking(options, options["judge_lm"], "judging")
    judge = None
    if asking is not None:
        protocol, repeats = options["protocol"], options["repeats"]
        rule: Any = options["judge_rule"] or (protocol if protocol in RULES else "ragbench")
        allow = options["allow_self_judge"]
        judge = JudgeRequest(
            asking, rule, repeats, allow, labelled=options["labelled"], embedder=options["embedder"]
        )
    request = ScoreRequest(
        metrics=options["metrics"],
        protocol=options["protocol"],
        closed_book=options["closed_book"],
        attributor=make_asking(options, options["attribute_lm"], "attributing"),
        judge=judge,
    )
    if options["batch"] and not (judge or request.attributor):
        raise ConfigError("--batch needs a model to ask; give --judge LM or --attribute LM")
    if options["dry_run"]:
        for line in (line for run in runs for line in estimate_scoring(run, request).lines()):
            click.echo(line)
        return
    scored: list[Scored] = []
    with spending(take_limits(options)) as spent, so_far(scored, print_scores):
        for run in until_stopped(runs):
            scored.append(score_run(run, request))
    print_scores(scored)
    if spent.stopped_by:
        click.echo(
            f"stopped by {spent.stopped_by}; give the same command again to continue", err=True
        )
        raise click.exceptions.Exit(3)
    if any(run.damaged for run in scored):
        raise click.exceptions.Exit(2)
