"""`ragbench verdict`: does compiling help? All arms by one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import FiniteRange, command, option, output_options
from ragbench.cli.main import print_line
from ragbench.cli.options import (
    answering_options,
    compile_options,
    data_options,
    dry_run_option,
    program_options,
    take_compile_config,
    take_limits,
    to_config,
)
from ragbench.cli.so_far import table_so_far


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
@option(
    "--equal-cost/--no-equal-cost", default=True, show_default=True, group="Compiling",
    help="Add an arm: not compiled, with votes for as many tokens (and dollars) as compiled uses.",
)  # fmt: skip
@option(
    "--form-too/--no-form-too", default=True, show_default=True, group="Compiling",
    help="Add an arm: compiled, with --form too.",
)  # fmt: skip
@option("--report", "metrics", multiple=True, group="Output", metavar="METRIC",
        help="Metric to compare; repeat for more. [default: em, f1]")  # fmt: skip
@option("--margin", type=FiniteRange(min=0), group="Output",
        help="Difference too small to matter, to test for equivalence.")  # fmt: skip
@option("--exact", is_flag=True, group="Output",
        help="Use intervals that hold for any distribution of scores; most are wider.")  # fmt: skip
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
    exact: bool,
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
    from ragbench.cli.progress import RunProgress
    from ragbench.experiments.compare.design import VerdictRequest, verdict_folder
    from ragbench.experiments.compare.running import estimate_verdict, run_verdict
    from ragbench.experiments.compare.verdicts import reread
    from ragbench.experiments.report.verdict import print_verdict
    from ragbench.experiments.runs import HEADLINE, limited

    if read is not None:
        print_verdict(reread(read))
        return
    compile_config = take_compile_config(options, out=None)
    limits = take_limits(options)
    config = to_config(**options)
    if (until is None) != (max_questions is None):
        raise click.UsageError("--until decided and --max-questions N go together")
    request = VerdictRequest(
        seeds, equal_cost, form_too, metrics or HEADLINE, margin, exact, max_questions
    )
    if dry_run:
        for line in estimate_verdict(config, compile_config, request):
            click.echo(line)
        return
    folder = verdict_folder(config, compile_config)
    with limited(limits, folder), table_so_far(folder), RunProgress() as progress:
        verdict = run_verdict(
            config, compile_config, request, on_message=print_line, on_start=progress.start,
            on_record=progress.update, on_prepare=progress.prepare,
        )  # fmt: skip
    print_verdict(verdict)
