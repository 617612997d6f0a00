"""Single questions through one program, without a run folder."""

from dataclasses import replace
from pathlib import Path

import dspy

from ragbench.data import make_example
from ragbench.experiments.artifacts import load_artefact
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs import RunContext, ask, build
from ragbench.record import Record


def open_context(config: RunConfig, *, like: RunContext | None = None) -> RunContext:
    """The run context of `ask`, with the compiled state if the config names one."""
    run_context = build(config, like=like, no_questions=config.data.dataset == "documents")
    if config.compiled is not None:
        load_artefact(config.compiled, run_context.program)
    return run_context


def pooled(config: RunConfig) -> RunConfig:
    """`config` for questions of the caller's own, which have no passages filed under them."""
    return config.but(setting="pooled")


def over_documents(config: RunConfig, folder: Path) -> RunConfig:
    """`config` over the documents in `folder`."""
    return config.but(dataset="documents", corpus_file=folder, data_file=None, hub=False)


def answer_one(run_context: RunContext, question: str) -> Record:
    """The record of a question of the caller's own: without gold answer and scores."""
    example: dspy.Example = make_example(qid="asked", question=question, answers=[""])
    with run_context.active():
        record = ask(run_context.program, example)
    return replace(record, answers=[], scores={})
