"""`ragbench ask`: answer one question and show how, or many in a row."""

from __future__ import annotations

import sys
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

    Without QUESTION, questions are read line by line from standard input; commands such as
    /program react and /lm local switch the program and the LM that answer.
    """
    from ragbench.experiments.ask import (
        answer_example,
        answer_one,
        open_context,
        over_documents,
        pooled,
    )
    from ragbench.experiments.ask_session import AskSession, typed
    from ragbench.experiments.report import console, plain, print_trace
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
        elif question is not None:
            run_context = open_context(pooled(config))
            where = docs or run_context.dataset.name
            passages = f"{len(run_context.dataset.corpus):,} passages"
            click.echo(f"searching {where}: {passages}, {config.retriever.name}")
            print_trace(answer_one(run_context, question))
        else:
            out = console()
            session = AskSession(config, lambda line: out.print(plain(line), soft_wrap=True))
            session.run(typed(sys.stdin))
