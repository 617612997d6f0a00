"""`ragbench compile`, `compiled` and `verdict`: compiled prompts, and whether they help."""

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import FiniteRange, command, option, output_options
from ragbench.cli.options import (
    answering_options,
    compile_metric_option,
    compile_options,
    corpus_options,
    data_options,
    dry_run_option,
    optimizer_metric_option,
    program_options,
    take_limits,
    take_settings,
    to_config,
)
from ragbench.cli.progress import RunProgress, table_so_far
from ragbench.experiments.config import SHIPPED, SHIPPED_FOLDER, CompileConfig
from ragbench.experiments.report.table import say


@command(
    "compile",
    examples=[
        "ragbench compile --program self_rag --optimizer bootstrap",
        "ragbench compile --program vanilla --optimizer mipro --preset medium --dry-run",
        "ragbench eval --compiled compiled/FOLDER",
    ],
)
@program_options
@compile_options
@compile_metric_option
@dry_run_option
@corpus_options
@answering_options
def compile_command(seeds: int, dry_run: bool, **options: Any) -> None:
    """Compile a program's prompts with an optimizer.

    Only training and validation questions are used. The estimated cost is printed first. Give the
    same command again to continue a compile that was interrupted. Use the result with
    `ragbench eval --compiled FOLDER`.
    """
    from ragbench.errors import ConfigError
    from ragbench.experiments.compile import (
        compile_folder,
        compile_program,
        estimate_compile,
        make_plan,
    )
    from ragbench.experiments.runs import limited

    for name, instead in (("split", "--train-limit"), ("limit", "--train-limit and --val-limit")):
        if options.get(name) is not None:
            raise ConfigError(
                f"compile uses the training and validation splits; leave out --{name} "
                f"{options[name]}, and give {instead}"
            )
    limits = take_limits(options)
    settings = take_settings(CompileConfig, "compile", options)
    config = to_config(**options)
    every = []
    for number in range(seeds):
        out = settings.out / f"seed-{number}" if settings.out and seeds > 1 else settings.out
        changes = {"optimizer_seed": settings.optimizer_seed + number, "out": out}
        every.append(settings.model_copy(update=changes))
    if dry_run:
        plan = make_plan(config, every[0])
        say(*estimate_compile(plan).lines())
        if seeds > 1:
            say(f"  times {seeds}, once for each seed")
        return
    folders = [compile_folder(config, each) for each in every]
    with limited(limits, *folders), RunProgress() as progress:
        for each in every:
            compile_program(config, each, on_message=say, on_prepare=progress.prepare)


@command("compiled", examples=["ragbench compiled", "ragbench compiled shipped"])
@click.argument("folder", type=click.Path(path_type=Path), default="compiled")
@output_options
def compiled_command(folder: Path) -> None:
    """List the compiled programs under FOLDER, by default `compiled`.

    `shipped` lists those that come with ragbench.
    """
    from ragbench.experiments.report.compiled import print_programs

    print_programs(SHIPPED_FOLDER if str(folder) == SHIPPED else folder)


@command(
    "verdict",
    examples=[
        "ragbench verdict --program self_rag --optimizer bootstrap --seeds 3",
        "ragbench verdict --program vanilla --dry-run",
        "ragbench verdict --read verdicts/FOLDER",
    ],
)
@program_options
@compile_options
@optimizer_metric_option
@option(
    "--equal-cost/--no-equal-cost", default=True, show_default=True, group="Compiling",
    help="Add an arm: not compiled, with votes for as many tokens as compiled uses.",
)  # fmt: skip
@option(
    "--form-too/--no-form-too", default=True, show_default=True, group="Compiling",
    help="Add an arm: compiled, with --form too.",
)  # fmt: skip
@option("--metric", "metrics", multiple=True, group="Output", metavar="METRIC",
        help="Metric to compare; repeat for more. [default: em, f1]")  # fmt: skip
@option("--margin", type=FiniteRange(min=0), group="Output",
        help="Difference too small to matter, to test for equivalence.")  # fmt: skip
@option("--until", type=click.Choice(["decided"]), group="Data",
        help="Begin with --limit questions and ask more until the result is decided.")  # fmt: skip
@option("--max-questions", type=click.IntRange(min=2), group="Data",
        help="Maximum number of questions with --until decided.")  # fmt: skip
@option("--read", type=click.Path(path_type=Path), metavar="FOLDER", group="Output",
        help="Print the finished verdict in this folder; no LM is called.")  # fmt: skip
@data_options
@answering_options
@dry_run_option
@output_options
def verdict_command(
    seeds: int,
    equal_cost: bool,
    form_too: bool,
    until: str | None,
    max_questions: int | None,
    metrics: tuple[str, ...],
    margin: float | None,
    read: Path | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Test whether compiling a program helps, beyond the form of its answers.

    Compiles on training and validation questions, asks held-out questions in every arm (not
    compiled, compiled, and each with --form), and compares the arms. Give the same command again to
    continue after an interruption.
    """
    from ragbench.experiments.compare.running import estimate_verdict, run_verdict
    from ragbench.experiments.compare.verdicts import VerdictRequest, reread, verdict_folder
    from ragbench.experiments.report.verdict import print_verdict
    from ragbench.experiments.runs import HEADLINE, limited

    if read is not None:
        print_verdict(reread(read))
        return
    compile_config = take_settings(CompileConfig, "compile", options, out=None)
    limits = take_limits(options)
    config = to_config(**options)
    if (until is None) != (max_questions is None):
        raise click.UsageError("--until decided and --max-questions N go together")
    request = VerdictRequest(
        seeds, equal_cost, form_too, metrics or HEADLINE, margin, max_questions
    )
    if dry_run:
        say(*estimate_verdict(config, compile_config, request))
        return
    folder = verdict_folder(config, compile_config)
    with limited(limits, folder), table_so_far(folder), RunProgress() as progress:
        verdict = run_verdict(
            config, compile_config, request, on_message=say, on_start=progress.start,
            on_record=progress.update, on_prepare=progress.prepare,
        )  # fmt: skip
    print_verdict(verdict)
