"""The commands `eval`, `ask` and `import`, which answer, and `score` and `errors`, which judge."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import (
    PATH,
    by_group_option,
    command,
    option,
    output_options,
    pairs,
    runs_argument,
)
from ragbench.cli.printing import say, show
from ragbench.cli.progress import RunProgress

self_judge_option = option("--allow-self-judge", is_flag=True, group="Judge",
                           help="Allow an LM to judge its own answers.")  # fmt: skip


@command(
    "eval",
    examples="""
ragbench eval --program ircot
ragbench eval --program self_rag --lm openai/gpt-4o-mini --dataset hotpotqa --hub
ragbench eval --config ircot --limit 100 --max-cost 2
ragbench eval --program react --temperature 0.7 --repeats 3
ragbench eval --compiled compiled/FOLDER
""",
    common=(
        "config_file program set k compiled dataset data_file corpus_file hub split limit "
        "retriever lm api_base workers out max_cost max_minutes dry_run pilot metrics "
        "by_group format"
    ),
)
@shared.program_options
@shared.control_options
@shared.data_options
@shared.answering_options
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Additional metric, as for `ragbench score`. Repeatable.")  # fmt: skip
@shared.repeat_option
@shared.repeats_option
@by_group_option
@shared.spread_options
@shared.how_options
@output_options
def eval_command(metrics: tuple[str, ...], repeats: int, by_group: bool, **options: Any) -> None:
    """Run a program over questions and print the table.

    Each record is saved when its question ends. Repeat the command to continue an interrupted run:
    it retries failed questions and skips finished ones. Exits with 1 if all questions failed, and
    with 3 if a limit stopped the run or no reply could be read.

    With --repeats, each repeat is a run in its own folder (`r1`, `r2`, ...) with its own seeds and
    cached replies. `ragbench compare` and `show` take the parent folder.
    """
    from ragbench.experiments.runs.processes import start_early

    if options["engine"] != "ray" and not options["dry_run"]:
        start_early(options["processes"] or "")  # They import while this process does.

    from ragbench.experiments.cells.cell import Cell, repeat_cells
    from ragbench.experiments.report.repeats import pooled_report
    from ragbench.experiments.report.tables import runs_report
    from ragbench.experiments.runs.runner import evaluate
    from ragbench.lms.calls import active
    from ragbench.metrics import get_metric

    for name in metrics:  # check the names before the first call
        get_metric(name)
    how = shared.take_how(options)
    config = shared.to_config(**options, complete=True)
    cells = repeat_cells(Cell("", config), repeats)
    with how.working(*(cell.folder for cell in cells)) as progress:
        # Cells import the optimizers, and scoring the judges: a quarter of a second each.
        if how.only_estimate:
            from ragbench.experiments.cells.estimate import estimate_cells

            say(*estimate_cells(cells, pilot=how.pilot, watch=progress))
            return
        if repeats > 1:
            from ragbench.experiments.cells.repeats import run_repeats

            runs = run_repeats(cells, progress)
        else:
            runs = [evaluate(config, watch=progress)]
        progress.close()
        final = runs[-1]
        for run in runs:
            if run.all_failed:
                say(f"all {len(run.records)} questions failed: the scores are of no answer")
        if final.records or active()[0].error is None:  # else the block ends with that error
            show(pooled_report([runs] if final.records else []))
            show(runs_report(runs, by_group))
        if metrics and any(run.records for run in runs):
            from ragbench.experiments.report.scores import scores_report
            from ragbench.experiments.score.scoring import ScoreRequest, score_run

            request = ScoreRequest(metrics=metrics)
            show(scores_report([score_run(run.folder, request) for run in runs if run.records]))
    if all(run.all_failed for run in runs) and not final.stopped_by:
        raise click.exceptions.Exit(1)
    is_interrupted = bool(final.stopped_by) or any(run.progress.cut_off for run in runs)
    if is_interrupted or any(run.unreadable == len(run.records) > 0 for run in runs):
        raise click.exceptions.Exit(3)


@command(
    "ask",
    examples="""
ragbench ask "Who directed the film?"
ragbench ask "What does the contract say of notice?" --docs contracts/
ragbench ask
""",
    common=(
        "config_file program set k docs compiled dataset data_file corpus_file retriever lm "
        "api_base temperature workers max_cost max_minutes"
    ),
)
@click.argument("question", required=False)
@option("--docs", type=PATH, group="Data",
        help="Folder of documents to answer from, instead of a data set.")  # fmt: skip
@shared.program_options
@shared.corpus_options
@shared.answering_options
def ask_command(question: str | None, docs: Path | None, **options: Any) -> None:
    """Answer QUESTION over the corpus and print the steps, plan, passages, citations and calls.

    Without QUESTION, reads questions line by line from standard input. If the facts are missing,
    the program says so (on_missing=say_so). Exits with 3 if a question has no supported answer.
    """
    from ragbench.data import make_example
    from ragbench.experiments.report.trace import answer_lines, trace_report
    from ragbench.experiments.runs.asking import ask
    from ragbench.experiments.runs.context import build, limited
    from ragbench.experiments.runs.loading import finish
    from ragbench.programs.core import is_answer

    limits = shared.take_limits(options)
    # Search the whole corpus, because a typed question has no passages.
    config = shared.to_config(**options).but(setting="pooled")
    if ":" not in config.program:
        knobs = {"on_missing": "say_so", **config.set}
        config = config.but(set=knobs)
    if docs is not None:
        config = config.but(dataset="documents", corpus_file=docs, data_file=None, hub=False)
    with limited(limits):
        run_context = build(config, no_questions=config.dataset == "documents")
        program = finish(
            run_context.program, compiled=config.compiled, form=config.form, votes=config.votes
        ).program
        run_context.check_lms()
        data = run_context.dataset
        passages = f"{len(data.corpus):,} passages"
        say(f"searching {docs or data.name}: {passages}, {config.retriever}")
        supported = True
        for line in filter(None, map(str.strip, sys.stdin if question is None else [question])):
            example = make_example(qid="asked", question=line, answers=[""])
            with run_context.active():
                record = ask(program, example)
            show(trace_report(replace(record, answers=[], scores={})))
            supported = supported and not record.failed and is_answer(record.answer_text)
            say("", *answer_lines(record, docs or data.name))
    if not supported:
        raise click.exceptions.Exit(3)


@command(
    "import",
    examples="""
ragbench import predictions.jsonl --name langgraph --data-file dev.json
ragbench import hotpot_pred.json --name paper --data-file hotpot_dev_distractor_v1.json
ragbench compare runs/vanilla runs/imported-langgraph
""",
)
@click.argument("file", type=PATH)
@option("--name", default="imported", group="Program", help="Name of the system in tables.")
@option("--lm", "model", default="unknown", metavar="NAME", group="Program",
        help="LM of the system, for tables.")  # fmt: skip
@shared.data_options
@option("--prediction-field", "fields", multiple=True, metavar="NAME=FIELD", group="Data",
        callback=pairs, help="Read NAME, such as answer, from this FIELD of FILE, as "
        "output[0].answer; repeat for more.")  # fmt: skip
@option("--out", type=PATH, group="Output",
        help="Run folder. [default: runs/imported-NAME]")  # fmt: skip
@output_options
def import_command(
    file: Path, name: str, model: str, out: Path | None, fields: dict[str, str], **options: Any
) -> None:
    """Import the predictions of another system in FILE as a run.

    FILE is JSON lines, JSON or a table. Each row has an id (or question) and an answer, and
    optionally passages, tokens, calls, cost_usd and latency_s. --prediction-field maps other names.
    The official prediction files of HotpotQA, 2WikiMultiHopQA, MuSiQue and GraphRAG-Bench need no
    mapping.
    """
    from ragbench.experiments.importing import folder_of, import_run
    from ragbench.experiments.report.tables import runs_report

    config = shared.to_config(**options, complete=True)
    run = import_run(config, file, name, model, out or folder_of(name), fields)
    show(runs_report([run]))


@command(
    "score",
    examples="""
ragbench score runs/A --metric recall@5
ragbench score runs/A --judge openai/gpt-4o-mini --protocol arag --max-cost 1
""",
)
@runs_argument
@option("--metric", "metrics", multiple=True, metavar="NAME", group="Output",
        help="Metric to compute; repeat for more. [default: the standard ones]")  # fmt: skip
@option("--protocol", metavar="NAME", group="Output",
        help="Scoring protocol; see `ragbench list protocols`.")  # fmt: skip
@option("--judge", "judge_lm", metavar="LM", group="Judge", help="LM that judges the answers.")
@option("--judge-rule", type=click.Choice(["ragbench", "arag", "grounding"]), group="Judge",
        help="Rule for the judge. [default: the protocol's, else ragbench]")  # fmt: skip
@option("--judge-repeats", group="Judge", type=click.IntRange(min=1), default=1,
        help="Verdicts per answer, averaged.")  # fmt: skip
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
    """Score each RUN from its records, without calling the LM that answered.

    Writes scores.json, and all scores to the run's database. The judge's replies are saved there
    too, so repeating the command continues an interrupted scoring. Exits with 1 if no reply of a
    judge could be used.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.scores import scores_report
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
        published = {"arag": "arag", "linearrag": "arag"}.get(protocol, "ragbench")
        rule: Any = options["judge_rule"] or published
        allow = options["allow_self_judge"]
        repeats = options["judge_repeats"]
        judge = JudgeRequest(asking, rule, allow, options["embedder"], repeats)
    counted = partial(progress.count, "attributing")
    attributor = shared.make_asking(options, options["attribute_lm"], counted)
    request = ScoreRequest(options["metrics"], protocol, attributor=attributor, judge=judge)
    if options["batch"] and not (judge or request.attributor):
        raise ConfigError("--batch needs a model to ask; give --judge LM or --attribute LM")
    if options["dry_run"]:
        lines: list[str] = []
        for folder in runs:
            lines += estimate_scoring(folder, request).lines()
        say(*lines)
        return
    with spending(shared.take_limits(options)) as spent, progress:
        scored = [score_run(run, request) for run in runs]
    show(scores_report(scored))
    _end_where_stopped(spent.stopped_by)
    void = []
    for run in scored:
        for name in run.void:
            void.append(f"{run.folder}: {name}: no reply could be used")
    if void:
        say(*void, err=True)
        raise click.exceptions.Exit(1)
    if any(run.damaged for run in scored):
        raise click.exceptions.Exit(2)


@command(
    "errors",
    examples="""
ragbench errors runs/A
ragbench errors runs/A --cause reading --show 5
""",
)
@runs_argument
@option("--show", type=click.IntRange(min=0), default=3, group="Output",
        help="Number of examples to show of each cause; 0 for none.")  # fmt: skip
@option("--cause", metavar="NAME", group="Output",
        help="Show examples of this cause only, such as reading or reading/partial.")  # fmt: skip
@option("--metric", default="em", metavar="NAME", group="Output",
        help="Metric that decides if an answer is wrong (score < 1).")  # fmt: skip
@option("--judge", "judge_lm", metavar="LM", group="Judge",
        help="LM that decides the causes that rules cannot.")  # fmt: skip
@option("--modes", is_flag=True, group="Judge",
        help="Let --judge assign A-RAG's failure modes, from the steps taken.")  # fmt: skip
@option("--gold", type=PATH, metavar="RUN", group="Output",
        help="Also compare all questions with a run of the program gold.")  # fmt: skip
@self_judge_option
@shared.asking_options
@shared.log_option
@output_options
def errors_command(runs: tuple[Path, ...], **options: Any) -> None:
    """Print the causes of each RUN's wrong answers, with examples.

    Rules assign one cause to each wrong answer, from its record only. With --judge, an LM decides
    the cases that the rules cannot, and the output marks them. With --modes, the LM names the first
    mistake, as in the analysis of A-RAG. If the run was scored by a judge, its verdicts determine
    which answers are wrong. With --gold, all questions are compared with a run that received the
    gold passages, to show the gain of perfect retrieval.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.report.gold import gold_report
    from ragbench.experiments.report.scores import errors_of, errors_report
    from ragbench.lms.calls import spending

    progress = RunProgress()
    asking = shared.make_asking(options, options["judge_lm"], partial(progress.count, "explaining"))
    for name in ("batch", "modes"):
        if options[name] and asking is None:
            raise ConfigError(f"--{name} needs a model to ask; give --judge LM")
    how = {name: options[name] for name in ("metric", "modes")}
    how["allow_self"] = options["allow_self_judge"]
    with spending(shared.take_limits(options)) as spent, progress:
        scored = [errors_of(run, asking=asking, **how) for run in runs]
    show(errors_report(scored, show=options["show"], cause=options["cause"]))
    if options["gold"]:
        for run in runs:
            show(gold_report(run, options["gold"], options["metric"]))
    _end_where_stopped(spent.stopped_by)


def _end_where_stopped(limit: str | None) -> None:
    if limit:
        say(f"stopped by {limit}; give the same command again to continue", err=True)
        raise click.exceptions.Exit(3)
