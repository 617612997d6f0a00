"""`ragbench ask`: answer one question and show how."""

from __future__ import annotations

from typing import Any

import click

from ragbench.cli.options import (
    data_options,
    lm_options,
    program_options,
    retriever_options,
    run_options,
    to_config,
)


@click.command("ask")
@click.argument("question", required=False)
@program_options
@data_options
@retriever_options
@lm_options
@run_options
def ask_command(question: str | None, **options: Any) -> None:
    """Answer QUESTION over the corpus and print the steps, passages and calls.

    Without QUESTION, the first question of the split is asked and its gold answer shown.
    """
    from ragbench.experiments.ask import answer_one
    from ragbench.experiments.trace_report import print_trace

    print_trace(answer_one(to_config(**options), question))
