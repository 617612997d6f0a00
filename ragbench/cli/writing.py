"""The command `ragbench questions`, which writes questions from the user's documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import PATH, Numbers, command, force_option, option
from ragbench.cli.printing import say
from ragbench.cli.progress import RunProgress


@command(
    "questions",
    examples="""
ragbench questions contracts/ -n 60 --lm openai/gpt-4o-mini -o questions.jsonl
ragbench questions contracts/ --hops 2,3 --max-cost 1 --page look.html
""",
    common="questions hops output page lm api_base passage_tokens workers max_cost dry_run",
)
@click.argument("docs", type=PATH)
@option("-n", "--questions", type=click.IntRange(1, 10_000), default=60, group="Questions",
        help="Number of questions to keep.")  # fmt: skip
@option("--hops", default="2,2,3,2,4,1", type=Numbers(4), metavar="N,N,...", group="Questions",
        help="Number of hops of successive questions. Range: 1 to 4.")  # fmt: skip
@option("-o", "--output", type=PATH, default=Path("questions.jsonl"), group="Output",
        help="File to write.")  # fmt: skip
@option("--page", type=PATH, group="Output",
        help="Also write a page to review the questions: keep, drop, edit, save.")  # fmt: skip
@shared.corpus_options
@shared.lm_options
@option("--workers", "--num-threads", "workers", type=click.IntRange(1, 64), default=4,
        group="Run", help="Questions written in parallel.")  # fmt: skip
@shared.seed_option
@force_option
@shared.dry_run_option
@shared.limit_options
@shared.log_option
def questions_command(
    docs: Path,
    questions: int,
    hops: list[int],
    output: Path,
    page: Path | None,
    workers: int,
    force: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Write questions of 1 to 4 hops from DOCS, each verified to need every hop.

    A question is accepted only if the reader answers it from all its passages, twice, and fails
    without any one of them and from memory. The output counts the rejected drafts by reason. Repeat
    the command to continue.
    """
    from ragbench.data.passages import read_corpus
    from ragbench.experiments.questions import Request, write_questions
    from ragbench.experiments.questions.page import write_page
    from ragbench.experiments.runs.context import limited, lm_of
    from ragbench.lms.reply_cache import configure_cache
    from ragbench.logs import quiet_libraries
    from ragbench.outputs import Output

    limits = shared.take_limits(options)
    # Passage ids must equal those of later runs over the same documents.
    options |= {"dataset": "jsonl", "corpus_file": docs, "setting": "pooled"}
    config = shared.to_config(program="direct", **options)
    seed = config.data_settings().split_seed or 0
    request = Request(questions, tuple(hops), seed, workers, config.adapter)
    passages = list(read_corpus(config.data_settings()))
    page_output = Output(page, "questions", force) if page else None
    if page_output is not None:
        page_output.check()
    if dry_run:
        say(*_estimate(request, len(passages)))
        return
    quiet_libraries()
    configure_cache()
    work = output.with_name(f"{output.name}.work")
    with limited(limits, work), RunProgress() as progress:
        lm = lm_of(config, config.lm, main=True)
        lm.check()
        written = write_questions(passages, lm, request, output, progress, force=force)
    say(*written.lines())
    if not written.rows:
        say(
            "no question held; another --lm, or documents that share more names, may help", err=True
        )
        raise click.exceptions.Exit(1)
    say(f"{output}: ask them with --data-file {output} --corpus-file {docs}")
    if page_output is not None:
        write_page(written.rows, page_output)
        say(f"{page}: open it in a browser to keep, drop and edit")


def _estimate(request: Any, passages: int) -> list[str]:
    """Return the minimum and maximum number of calls: every draft accepted, or most rejected."""
    from ragbench.experiments.questions.writing import MOST_DRAFTS

    calls = [3 + 1 + (hops if hops > 1 else 0) for hops in request.hops]
    mean = sum(calls) / len(calls)
    least = round(mean * request.questions)
    return [
        f"{request.questions} questions over {passages} passages: {least} calls where every draft "
        f"holds, at most {round(MOST_DRAFTS * mean * request.questions)}; a draft that does not "
        "hold ends at its first failing check"
    ]
