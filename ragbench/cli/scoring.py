"""`ragbench score` and `errors`: more scores for finished runs, and why answers are wrong."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, option, output_options, runs_argument
from ragbench.cli.options import asking_options, log_option, make_asking, take_limits
from ragbench.cli.progress import RunProgress, so_far, until_stopped
from ragbench.experiments.report.table import say

RULES = ("ragbench", "arag", "grounding")


@command(
    "score",
    examples=[
        "ragbench score runs/A --metric recall@5",
        "ragbench score runs/A --judge openai/gpt-4o-mini --protocol arag --max-cost 1",
    ],
)
@runs_argument
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Metric to compute; repeat for more. [default: the standard ones]")  # fmt: skip
@option("--protocol", metavar="NAME", group="Output",
        help="Scoring protocol; see `ragbench list protocols`.")  # fmt: skip
@option("--judge", "judge_lm", metavar="LM", group="Judge", help="LM that judges the answers.")
@option("--judge-rule", type=click.Choice(RULES),
              group="Judge",
              help="Rule for the judge. [default: the protocol's, else ragbench]")  # fmt: skip
@option("--allow-self-judge", is_flag=True, group="Judge",
        help="Allow a model to judge its own answers.")  # fmt: skip
@option("--embedder", default="local", group="Judge", metavar="SPEC",
        help="Embedder for the answer similarity of the protocol graphrag-bench. [default: local]",
        show_default=False)  # fmt: skip
@option("--attribute", "attribute_lm", metavar="LM", group="Judge",
              help="LM that names the sentences (2Wiki: facts) behind each answer.")  # fmt: skip
@option("--dry-run", is_flag=True, group="Limits", help="Print the estimated cost, and stop.")
@asking_options
@log_option
@output_options
def score_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Score each RUN from its records; the model that answered is not asked again.

    Writes scores.json, and every score to the run's database. The judge's replies are kept there
    too: the same command continues after an interruption and asks nothing twice. Exits with 1 where
    no reply of a judge could be used.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.scores import print_scores
    from ragbench.experiments.score.scoring import (
        JudgeRequest,
        Scored,
        ScoreRequest,
        estimate_scoring,
        score_run,
    )
    from ragbench.lms.calls import spending

    progress = RunProgress()
    asking = make_asking(options, options["judge_lm"], partial(progress.count, "judging"))
    judge = None
    if asking is not None:
        protocol = options["protocol"]
        published = "arag" if protocol in ("arag", "linearrag") else "ragbench"
        rule: Any = options["judge_rule"] or published
        allow = options["allow_self_judge"]
        judge = JudgeRequest(asking, rule, allow, embedder=options["embedder"])
    request = ScoreRequest(
        metrics=options["metrics"],
        protocol=options["protocol"],
        attributor=make_asking(
            options, options["attribute_lm"], partial(progress.count, "attributing")
        ),
        judge=judge,
    )
    if options["batch"] and not (judge or request.attributor):
        raise ConfigError("--batch needs a model to ask; give --judge LM or --attribute LM")
    if options["dry_run"]:
        say(*(line for run in runs for line in estimate_scoring(run, request).lines()))
        return
    scored: list[Scored] = []
    with spending(take_limits(options)) as spent, so_far(scored, print_scores), progress:
        for run in until_stopped(runs):
            scored.append(score_run(run, request))
    print_scores(scored)
    if spent.stopped_by:
        say(f"stopped by {spent.stopped_by}; give the same command again to continue", err=True)
        raise click.exceptions.Exit(3)
    for one in scored:
        for name in one.void:
            say(f"{one.folder}: {name}: no reply could be used", err=True)
    if any(one.void for one in scored):
        raise click.exceptions.Exit(1)
    if any(run.damaged for run in scored):
        raise click.exceptions.Exit(2)


@command(
    "errors", examples=["ragbench errors runs/A", "ragbench errors runs/A --cause reading --show 5"]
)
@runs_argument
@option("--show", type=click.IntRange(min=0), default=3, group="Output",
        help="Number of examples to show of each cause; 0 for none.")  # fmt: skip
@option("--cause", metavar="NAME", group="Output",
        help="Show examples of this cause only, such as reading or reading/partial.")  # fmt: skip
@option("--metric", default="em", metavar="NAME", group="Output",
        help="Metric by which an answer is wrong: less than 1. [default: em]",
        show_default=False)  # fmt: skip
@option("--judge", "judge_lm", metavar="LM", group="Judge",
              help="LM that decides the causes that rules cannot.")  # fmt: skip
@option("--allow-self-judge", is_flag=True, group="Judge",
        help="Allow a model to explain its own answers.")  # fmt: skip
@asking_options
@log_option
@output_options
def errors_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Print the causes of each RUN's wrong answers, and examples to read.

    Every wrong answer has one cause, found by rules from its record alone; with --judge, a model
    decides those that rules cannot, and they are marked. A judge's verdicts count where the run was
    scored with one.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.errors import Errors, errors_of, print_errors
    from ragbench.lms.calls import spending

    progress = RunProgress()
    asking = make_asking(options, options["judge_lm"], partial(progress.count, "explaining"))
    if options["batch"] and asking is None:
        raise ConfigError("--batch needs a model to ask; give --judge LM")
    cause = options["cause"]
    summaries: list[Errors] = []
    printed = partial(print_errors, show=options["show"], cause=cause)
    with spending(take_limits(options)) as spent, so_far(summaries, printed), progress:
        for run in until_stopped(runs):
            summaries.append(
                errors_of(
                    run,
                    asking=asking,
                    allow_self=options["allow_self_judge"],
                    metric=options["metric"],
                )
            )
    printed(summaries)
    if spent.stopped_by:
        say(f"stopped by {spent.stopped_by}; give the same command again to continue", err=True)
        raise click.exceptions.Exit(3)
