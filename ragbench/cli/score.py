"""`ragbench score`: add scores to finished runs, from their records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ragbench.cli.asking import asking_options, make_asking
from ragbench.cli.options import closed_book_option, log_option, take_limits

RULES = ("ragbench", "arag", "linearrag", "grounding")


@click.command("score")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="Repeat for more. [default: the usual]")
@click.option("--protocol", help="See `ragbench list protocols`.")
@closed_book_option
@click.option("--judge", "judge_lm", metavar="LM", help="LM that judges the answers.")
@click.option("--judge-rule", type=click.Choice(RULES),
              help="How it judges. [default: the protocol's, else ragbench]")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 10), default=1, help="Verdicts on each answer.")
@click.option("--allow-self-judge", is_flag=True, help="Let a model judge its own answers.")
@click.option("--embedder", default="local", help="Of similarity, for graphrag-bench.")
@click.option("--attribute", "attribute_lm", metavar="LM",
              help="LM that names the sentences, and for 2Wiki the facts, of answers.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what judging would spend, and stop.")
@asking_options
@log_option
def score_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Score each RUN from its records; the model that answered is not asked again.

    Writes scores.json and scores.jsonl beside the records. What a judge said is kept in
    judged.jsonl: the same command continues where it was cut off and asks nothing twice.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.estimate import estimate_scoring
    from ragbench.experiments.score import JudgeRequest, ScoreRequest, score_run
    from ragbench.experiments.score_report import print_scores
    from ragbench.lms.limits import spending

    asking = make_asking(options, options["judge_lm"], "judging")
    judge = None
    if asking is not None:
        protocol, repeats = options["protocol"], options["repeats"]
        rule: Any = options["judge_rule"] or (protocol if protocol in RULES else "ragbench")
        allow = options["allow_self_judge"]
        judge = JudgeRequest(asking, rule, repeats, allow, options["embedder"])
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
    with spending(take_limits(options)) as spent:
        scored = [score_run(run, request) for run in runs]
    print_scores(scored)
    if spent.stopped_by:
        click.echo(f"stopped by {spent.stopped_by}; the same command continues", err=True)
        sys.exit(3)
    if any(run.corrupt for run in scored):
        sys.exit(2)
