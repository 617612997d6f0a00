"""`ragbench ask`: answer one question and show how, or many in a row."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, option
from ragbench.cli.options import (
    answering_options,
    data_options,
    program_options,
    take_limits,
    to_config,
)


@command(
    "ask",
    examples=[
        'ragbench ask "Who directed the film?"',
        "ragbench ask --example --program react --dataset hotpotqa --data-file dev.json",
        'ragbench ask "What does the contract say of notice?" --docs contracts/',
        "ragbench ask",
    ],
)
@click.argument("question", required=False)
@option("--example", is_flag=True, group="Data",
        help="Ask the first question of the split, and show its correct answer too.")  # fmt: skip
@option("--docs", type=click.Path(path_type=Path), group="Data",
        help="Folder of documents to answer from, instead of a data set.")  # fmt: skip
@program_options
@data_options
@answering_options
def ask_command(question: str | None, example: bool, docs: Path | None, **options: Any) -> None:
    """Answer QUESTION over the corpus and print the steps, plan, passages, citations and calls.

    Without QUESTION, questions are read line by line from standard input until its end.
    """
    from ragbench.experiments.ask import (
        answer_example,
        answer_one,
        open_context,
        over_documents,
        pooled,
    )
    from ragbench.experiments.report.trace import print_trace
    from ragbench.experiments.runs import limited

    if example and question is not None:
        raise click.UsageError("give a QUESTION or --example, not both")
    if example and docs is not None:
        raise click.UsageError("--example is of a data set: leave out --docs")
    limits = take_limits(options)
    config = to_config(**options)
    if docs is not None:
        config = over_documents(config, docs)
    with limited(limits):
        if example:
            print_trace(answer_example(config))
            return
        run_context = open_context(pooled(config))
        run_context.check_lms()
        where = docs or run_context.dataset.name
        passages = f"{len(run_context.dataset.corpus):,} passages"
        click.echo(f"searching {where}: {passages}, {config.retriever.name}")
        for line in filter(None, map(str.strip, _typed() if question is None else [question])):
            print_trace(answer_one(run_context, line))


def _typed() -> Iterator[str]:
    """The lines of standard input; at a terminal, with a prompt and the usual editing keys."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    with contextlib.suppress(ImportError):  # input() edits lines once this is imported
        import readline  # noqa: F401
    with contextlib.suppress(EOFError):
        while True:
            yield input("> ")
