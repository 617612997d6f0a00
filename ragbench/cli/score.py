"""`ragbench score`: add scores to finished runs, from their records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragbench.cli.options import log_option

if TYPE_CHECKING:
    from ragbench.experiments.passes import Asking

RULES = ("ragbench", "arag", "linearrag")


@click.command("score")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="Repeat for more. [default: the usual]")
@click.option("--protocol", help="See `ragbench list protocols`.")
@click.option("--closed-book", type=click.Path(path_type=Path),
              help="Run without retrieval; breaks down by whether it has the answer.")  # fmt: skip
@click.option("--judge", "judge_lm", metavar="LM", help="LM that judges the answers.")
@click.option("--judge-rule", type=click.Choice(RULES),
              help="How it judges. [default: the protocol's, else ragbench]")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 10), default=1, help="Verdicts on each answer.")
@click.option("--allow-self-judge", is_flag=True, help="Let a model judge its own answers.")
@click.option("--embedder", default="local", help="Of similarity, for graphrag-bench.")
@click.option("--attribute", "attribute_lm", metavar="LM",
              help="LM that names the sentences an answer rests on.")  # fmt: skip
@click.option("--api-base", help="URL of an OpenAI-compatible server, for these LMs.")
@click.option("--price", help="in=USD,out=USD per million tokens, where unknown.")
@click.option("--max-usd", type=click.FloatRange(min=0, min_open=True),
              help="Stop judging, or attributing, a run when this much was billed.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(min=16), default=1024, help="Of one reply.")
@click.option("--workers", type=click.IntRange(1, 1024), default=4, help="Calls at once.")
@click.option("--cache/--no-cache", default=True, help="Reuse replies.")
@log_option
def score_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Score each RUN from its records; the model that answered is not asked again.

    Writes scores.json and scores.jsonl beside the records. What a judge said is kept in
    judged.jsonl: the same command continues where it was cut off and asks nothing twice.
    """
    from ragbench.experiments.score import JudgeRequest, ScoreRequest, score_run
    from ragbench.experiments.score_report import print_scores

    asking = _asking(options, options["judge_lm"], "judging")
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
        attributor=_asking(options, options["attribute_lm"], "attributing"),
        judge=judge,
    )
    scored = [score_run(run, request) for run in runs]
    print_scores(scored)
    if any(run.corrupt for run in scored):
        sys.exit(2)


def _asking(options: dict[str, Any], spec: str | None, what: str) -> Asking | None:
    if spec is None:
        return None
    from ragbench.experiments.passes import Asking
    from ragbench.lms.cache import configure_cache
    from ragbench.lms.factory import make_lm
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    configure_cache()
    lm = make_lm(
        spec,
        api_base=options["api_base"],
        price=options["price"],
        max_tokens=options["max_tokens"],
        cache=options["cache"],
    )
    return Asking(lm, options["workers"], options["max_usd"], _progress(what))


def _progress(what: str) -> Any:
    """A line on the terminal that counts the replies; silent where stderr is a file."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, n: int) -> None:
        click.echo(f"\r{what}: {done} of {n}", nl=done == n, err=True)

    return show
