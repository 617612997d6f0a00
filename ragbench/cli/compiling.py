"""Commands of many runs: `compile`, `verdict`, `sweep` and `tune`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import (
    PATH,
    command,
    leave_out,
    margin_option,
    metrics_option,
    option,
    output_options,
    pairs,
    stack,
)
from ragbench.cli.printing import say, show
from ragbench.experiments.config import CompileConfig, TuneConfig


@command(
    "compile",
    examples="""
ragbench compile --program self_rag --optimizer bootstrap
ragbench compile --program vanilla --optimizer mipro --preset medium --dry-run
ragbench eval --compiled compiled/FOLDER
""",
    common=(
        "config_file program set k optimizer preset train_limit val_limit teacher "
        "optimizer_metric train_file val_file fresh dataset data_file corpus_file retriever "
        "lm api_base temperature workers out max_cost max_minutes dry_run"
    ),
)
@shared.program_options
@shared.compile_options
@shared.compile_metric_option
@shared.how_options
@shared.corpus_options
@shared.answering_options
def compile_command(**options: Any) -> None:
    """Compile a program's prompts with an optimizer.

    Uses only training and validation questions, and prints the estimated cost first. Repeat the
    command to continue an interrupted compile. Use the result with `ragbench eval --compiled
    FOLDER`.
    """
    from ragbench.experiments.compile import compile_program
    from ragbench.experiments.estimates import estimate_compile, run_pilot
    from ragbench.experiments.plans import compile_folder, make_plan

    how = shared.take_how(options)
    settings = shared.take_settings(CompileConfig, "compile", options)
    config = shared.to_config(**options)
    with how.working(compile_folder(config, settings)) as progress:
        if how.only_estimate:
            plan = make_plan(config, settings)
            if how.pilot:
                run_pilot(plan.run_context, how.pilot, progress)
            say(*estimate_compile(plan).lines())
        else:
            compile_program(config, settings, on_message=say, watch=progress)


@leave_out(
    # A verdict compiles the program itself and asks the held-out questions.
    "compiled", "split",
    # Options of the data set, its splits and its corpus. A config file may set them.
    "size", "split_seed", "fractions", "passage_tokens", "hub_config", "alias_file",
    # A verdict always saves prompts and events, and has no question timeout.
    "prompts", "question_timeout", "log_level",
)  # fmt: skip
@command(
    "verdict",
    examples="""
ragbench verdict --program self_rag --optimizer bootstrap --seeds 3
ragbench verdict --program vanilla --dry-run
ragbench verdict --read verdicts/FOLDER
""",
    common=(
        "program set optimizer preset train_limit val_limit seeds equal_cost metrics margin "
        "read limit dataset data_file corpus_file retriever lm api_base workers max_cost "
        "dry_run"
    ),
)
@shared.program_options
@shared.compile_options
@shared.optimizer_metric_option
@option("--seeds", type=click.IntRange(1, 100), default=1, group="Compiling",
        help="Number of compiles, with consecutive seeds from --optimizer-seed.")  # fmt: skip
@option("--equal-cost/--no-equal-cost", default=True, group="Compiling",
        help="Add an uncompiled arm that votes with the compiled token budget.")  # fmt: skip
@metrics_option
@margin_option
@shared.repeats_option
@option("--read", type=PATH, metavar="FOLDER", group="Output",
        help="Print the finished verdict in this folder; no LM is called.")  # fmt: skip
@shared.data_options
@shared.answering_options
@shared.how_options
@output_options
def verdict_command(read: Path | None, **options: Any) -> None:
    """Test whether compiling a program helps, beyond the form of its answers.

    Compiles on training and validation questions, asks the held-out questions in every arm
    (uncompiled, compiled, and each with --form), and compares the arms. Repeat the command to
    continue an interrupted verdict. With --repeats, every arm asks each question that many times
    and uses the mean per question.
    """
    from ragbench.experiments.cells.estimate import estimate_cells
    from ragbench.experiments.cells.verdict import reread, run_verdict, verdict_cells
    from ragbench.experiments.compare.verdicts import VerdictRequest, verdict_folder
    from ragbench.experiments.report.verdict import verdict_report
    from ragbench.experiments.runs.summary import HEADLINE

    if read is not None:
        show(verdict_report(reread(read)))
        return
    compile_config = shared.take_settings(CompileConfig, "compile", options, out=None)
    how = shared.take_how(options)
    names = ("seeds", "equal_cost", "metrics", "margin", "repeats")
    request = VerdictRequest(**{name: options.pop(name) for name in names})
    if not request.metrics:
        request = replace(request, metrics=HEADLINE)
    config = shared.to_config(**options)
    with how.working(verdict_folder(config, compile_config)) as progress:
        if how.only_estimate:
            cells = verdict_cells(config, compile_config, request)
            notes = []
            if request.equal_cost:
                notes.append("without the votes at equal cost, as much as one compiled arm")
            say(*estimate_cells(cells, pilot=how.pilot, watch=progress, notes=notes))
            return
        verdict = run_verdict(config, compile_config, request, on_message=say, watch=progress)
    show(verdict_report(verdict))


@command(
    "sweep",
    examples="""
ragbench sweep which.yaml --dry-run
ragbench sweep which.yaml --max-cost 5
""",
)
@click.argument("file")
@option("--out", type=PATH, group="Run",
        help="Folder for the results. [default: sweeps/ and the file's name]")  # fmt: skip
@option("--workers", "--num-threads", "workers", type=int, group="Run",
        help="Questions answered at once. [default: the file's]")  # fmt: skip
@option("--limit", type=int, group="Data",
        help="Number of questions, from the start of the split; 0 for all. "
             "[default: the file's]")  # fmt: skip
@option("--only", multiple=True, callback=pairs, metavar="NAME=VALUE", group="Run",
        help="Run only cells with this value, as dataset=musique; repeat for more.")  # fmt: skip
@shared.spread_options
@shared.how_options
@shared.limit_options
@shared.log_option
@output_options
def sweep_command(file: str, out: Path | None, only: dict[str, str], **options: Any) -> None:
    """Run every cell of a sweep FILE in sequence and compare them.

    All cells are checked before the first call. A failed cell does not affect the others. Repeat
    the command to retry failed cells and to continue an interrupted sweep. Exits with 1 if a cell
    failed, and with 3 if a limit stopped the sweep.
    """
    from ragbench.experiments.cells.sweep import run_sweep
    from ragbench.experiments.cells.sweep_file import load_sweep
    from ragbench.experiments.report.sweep import estimate_report, sweep_report

    how = shared.take_how(options)
    over = {name: value or None for name, value in options.items() if value is not None}
    sweep = load_sweep(file, out=out, over=over, only=only)
    with how.working(sweep.folder) as progress:
        if how.only_estimate:
            show(estimate_report(sweep, pilot=how.pilot, watch=progress))
            return
        swept = run_sweep(sweep, progress)
    show(sweep_report(swept))
    raise click.exceptions.Exit(swept.exit_code)


@command(
    "tune",
    examples="""
ragbench tune --program ircot --objective f1,cost
ragbench tune --program vanilla --space k=2:10 --only k --trials 30
ragbench eval --compiled tuned/FOLDER/front/00
""",
    common=(
        "config_file program set k objective trials space only split limit format dataset "
        "data_file corpus_file retriever lm api_base temperature workers out max_cost "
        "max_minutes dry_run"
    ),
)
@shared.program_options
@stack(*shared.field_options(TuneConfig, "Search"))
@shared.how_options
@shared.data_options
@shared.answering_options
@output_options
def tune_command(**options: Any) -> None:
    """Search a program's parameters with Optuna and save the Pareto front.

    Uses 50 validation questions (--limit changes that), or training questions with --split train.
    Repeat the command to continue, or add --trials to search further. Use a result with `ragbench
    eval --compiled FOLDER/front/00`, on the test split.
    """
    from ragbench.experiments.cells.tune import estimate_tune, tune, tune_folder
    from ragbench.experiments.report.tuned import tuned_report

    options["split"] = options["split"] or "validation"
    options["limit"] = 50 if options["limit"] is None else options["limit"]
    how = shared.take_how(options)
    settings = shared.take_settings(TuneConfig, "tune", options)
    config = shared.to_config(**options)
    with how.working(tune_folder(config)) as progress:
        if how.only_estimate:
            say(*estimate_tune(config, settings, pilot=how.pilot, watch=progress))
            return
        tuned = tune(config, settings, progress)
        progress.close()
        show(tuned_report(tuned))  # inside the block: if the LM is down, it ends with its error
    if tuned.stopped:
        say(tuned.stopped, err=True)
        raise click.exceptions.Exit(3)
