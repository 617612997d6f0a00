"""`ragbench eval`, `ask` and `import`: answers to questions, of a program or from elsewhere."""

import sys
from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import PATH, by_group_option, command, option, output_options
from ragbench.cli.progress import RunProgress
from ragbench.experiments.report.table import say


@command(
    "eval",
    examples=[
        "ragbench eval --program ircot",
        "ragbench eval --program self_rag --lm openai/gpt-4o-mini --dataset hotpotqa --hub",
        "ragbench eval --config ircot --limit 100 --max-cost 2",
        "ragbench eval --compiled compiled/FOLDER",
    ],
    common=(
        "config_file", "program", "set", "k", "compiled", "dataset", "data_file", "corpus_file",
        "hub", "split", "limit", "retriever", "lm", "api_base", "temperature", "workers", "out",
        "max_cost", "max_minutes", "dry_run", "metrics", "by_group", "format",
    ),
)  # fmt: skip
@shared.program_options
@shared.control_options
@shared.data_options
@shared.answering_options
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Also score by this metric, as `ragbench score` does; repeat for more.")  # fmt: skip
@by_group_option
@shared.spread_options
@shared.dry_run_option
@output_options
def eval_command(dry_run: bool, metrics: tuple[str, ...], by_group: bool, **options: Any) -> None:
    """Run a program over questions and print the table.

    A record is written as soon as a question ends. Give the same command again to continue an
    interrupted run: finished questions are not asked again, failed ones are. Exits with 1 where
    all questions failed, with 3 where a limit stopped the run or no reply could be read.
    """
    from ragbench.experiments.report.tables import print_runs
    from ragbench.experiments.runs import evaluate, limited, ready
    from ragbench.metrics import get_metric

    for name in metrics:  # before anything is asked
        get_metric(name)
    limits = shared.take_limits(options)
    config = shared.to_config(**options, whole=True)
    if dry_run:
        from ragbench.experiments.estimates import estimate_run

        say(*estimate_run(ready(config)).lines())
        return
    with limited(limits, config.folder()) as spent:
        with RunProgress() as progress:
            result = evaluate(config, watch=progress)
        if result.all_failed:
            say(f"all {len(result.records)} questions failed: the scores are of no answer")
        if result.records or spent.error is None:  # an LM that is down ends the block
            print_runs([result], by_group)
        if metrics and result.records:
            from ragbench.experiments.report.scores import print_scores
            from ragbench.experiments.score.scoring import ScoreRequest, score_run

            print_scores([score_run(config.folder(), ScoreRequest(metrics=metrics))])
    if result.all_failed and not result.stopped_by:
        raise click.exceptions.Exit(1)
    if result.stopped_by or result.unreadable == len(result.records) > 0:
        raise click.exceptions.Exit(3)


@command(
    "ask",
    examples=[
        'ragbench ask "Who directed the film?"',
        'ragbench ask "What does the contract say of notice?" --docs contracts/',
        "ragbench ask",
    ],
)
@click.argument("question", required=False)
@option("--docs", type=PATH, group="Data",
        help="Folder of documents to answer from, instead of a data set.")  # fmt: skip
@shared.program_options
@shared.corpus_options
@shared.answering_options
def ask_command(question: str | None, docs: Path | None, **options: Any) -> None:
    """Answer QUESTION over the corpus and print the steps, plan, passages, citations and calls.

    Without QUESTION, questions are read line by line from standard input until its end.
    """
    from ragbench.experiments.ask import answer_one, open_context, over_documents, pooled
    from ragbench.experiments.report.trace import print_trace
    from ragbench.experiments.runs import limited

    limits = shared.take_limits(options)
    config = shared.to_config(**options)
    if docs is not None:
        config = over_documents(config, docs)
    with limited(limits):
        run_context = open_context(pooled(config))
        run_context.check_lms()
        data = run_context.dataset
        passages = f"{len(data.corpus):,} passages"
        say(f"searching {docs or data.name}: {passages}, {config.retriever.name}")
        for line in filter(None, map(str.strip, sys.stdin if question is None else [question])):
            print_trace(answer_one(run_context, line))


@command(
    "import",
    examples=[
        "ragbench import predictions.jsonl --name langgraph --data-file dev.json",
        "ragbench import hotpot_pred.json --name paper --data-file hotpot_dev_distractor_v1.json",
        "ragbench compare runs/vanilla runs/imported-langgraph",
    ],
)
@click.argument("file", type=PATH)
@option("--name", default="imported", group="Program", help="What the system is called in tables.")
@option("--lm", "model", default="unknown", metavar="NAME", group="Program",
        help="The model that it asked, for tables.")  # fmt: skip
@shared.data_options
@option("--out", type=PATH, group="Output",
        help="Run folder. [default: runs/imported-NAME]")  # fmt: skip
@output_options
def import_command(file: Path, name: str, model: str, out: Path | None, **options: Any) -> None:
    """Make a run of the predictions in FILE, which another system made for a data set's questions.

    FILE is JSON lines, JSON or CSV with an id (or question) and an answer, and where they are known
    passages, tokens, calls, cost_usd and latency_s; or HotpotQA's official prediction file.
    """
    from ragbench.experiments.importing import import_run
    from ragbench.experiments.report.tables import print_runs

    config = shared.to_config(**options, whole=True)
    folder = out or Path("runs") / f"imported-{name.replace(':', '_')}"
    print_runs([import_run(config, file, name, model, folder)])
