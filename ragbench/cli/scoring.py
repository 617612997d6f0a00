"""`ragbench score` and `errors`: more scores for finished runs, and why answers are wrong."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import command, option, output_options, runs_argument
from ragbench.cli.progress import RunProgress
from ragbench.experiments.report.table import say

self_judge_option = option("--allow-self-judge", is_flag=True, group="Judge",
                           help="Allow a model to judge its own answers.")  # fmt: skip


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
@option("--judge-rule", type=click.Choice(["ragbench", "arag", "grounding"]), group="Judge",
        help="Rule for the judge. [default: the protocol's, else ragbench]")  # fmt: skip
@self_judge_option
@option("--embedder", default="local", group="Judge", metavar="SPEC",
        help="Embedder for the answer similarity of the protocol graphrag-bench.")  # fmt: skip
@option("--attribute", "attribute_lm", metavar="LM", group="Judge",
        help="LM that names the sentences (2Wiki: facts) behind each answer.")  # fmt: skip
@shared.dry_run_option
@shared.asking_options
@shared.log_option
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
        ScoreRequest,
        estimate_scoring,
        score_run,
    )
    from ragbench.lms.calls import spending

    progress = RunProgress()
    protocol = options["protocol"]
    asking = shared.make_asking(options, options["judge_lm"], partial(progress.count, "judging"))
    judge = None
    if asking is not None:
        published = "arag" if protocol in ("arag", "linearrag") else "ragbench"
        rule: Any = options["judge_rule"] or published
        allow = options["allow_self_judge"]
        judge = JudgeRequest(asking, rule, allow, embedder=options["embedder"])
    counted = partial(progress.count, "attributing")
    attributor = shared.make_asking(options, options["attribute_lm"], counted)
    request = ScoreRequest(options["metrics"], protocol, attributor=attributor, judge=judge)
    if options["batch"] and not (judge or request.attributor):
        raise ConfigError("--batch needs a model to ask; give --judge LM or --attribute LM")
    if options["dry_run"]:
        say(*(line for run in runs for line in estimate_scoring(run, request).lines()))
        return
    with spending(shared.take_limits(options)) as spent, progress:
        scored = [score_run(run, request) for run in runs]
    print_scores(scored)
    _end_where_stopped(spent.stopped_by)
    void = [f"{run.folder}: {name}: no reply could be used" for run in scored for name in run.void]
    if void:
        say(*void, err=True)
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
        help="Metric by which an answer is wrong: less than 1.")  # fmt: skip
@option("--judge", "judge_lm", metavar="LM", group="Judge",
        help="LM that decides the causes that rules cannot.")  # fmt: skip
@self_judge_option
@shared.asking_options
@shared.log_option
@output_options
def errors_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Print the causes of each RUN's wrong answers, and examples to read.

    Every wrong answer has one cause, found by rules from its record alone; with --judge, a model
    decides those that rules cannot, and they are marked. A judge's verdicts count where the run was
    scored with one.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.scores import errors_of, print_errors
    from ragbench.lms.calls import spending

    progress = RunProgress()
    asking = shared.make_asking(options, options["judge_lm"], partial(progress.count, "explaining"))
    if options["batch"] and asking is None:
        raise ConfigError("--batch needs a model to ask; give --judge LM")
    allow = options["allow_self_judge"]
    with spending(shared.take_limits(options)) as spent, progress:
        found = [
            errors_of(run, asking=asking, allow_self=allow, metric=options["metric"])
            for run in runs
        ]
    print_errors(found, show=options["show"], cause=options["cause"])
    _end_where_stopped(spent.stopped_by)


def _end_where_stopped(limit: str | None) -> None:
    if limit:
        say(f"stopped by {limit}; give the same command again to continue", err=True)
        raise click.exceptions.Exit(3)
