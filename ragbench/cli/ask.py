"""`ragbench ask`: answer one question and show how, or many in a row."""

from __future__ import annotations

import sys
from typing import Any

import click

from ragbench.cli.options import (
    data_options,
    limit_options,
    lm_options,
    program_options,
    retriever_options,
    run_options,
    take_limits,
    to_config,
)


@click.command("ask")
@click.argument("question", required=False)
@click.option("--example", is_flag=True, help="Ask the split's first question; show its gold.")
@program_options
@data_options
@retriever_options
@lm_options
@run_options
@limit_options
def ask_command(question: str | None, example: bool, **options: Any) -> None:
    """Answer QUESTION over the corpus and print the steps, plan, passages, citations and calls.

    Without QUESTION, questions are read line by line until the end of the input; commands such as
    /program react and /lm local switch what answers them.
    """
    from ragbench.experiments.ask import answer_example, answer_one, open_bench, pooled
    from ragbench.experiments.demo import Demo, typed
    from ragbench.experiments.limited import limited
    from ragbench.experiments.report import console, plain
    from ragbench.experiments.trace_report import print_trace

    if example and question is not None:
        raise click.UsageError("give a QUESTION or --example, not both")
    limits = take_limits(options)
    config = to_config(**options)
    with limited(limits):
        if example:
            print_trace(answer_example(config))
        elif question is not None:
            print_trace(answer_one(open_bench(pooled(config)), question))
        else:
            out = console()
            demo = Demo(config, lambda line: out.print(plain(line), soft_wrap=True))
            demo.run(typed(sys.stdin))
