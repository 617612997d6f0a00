"""One question through one program, without a run folder."""

from __future__ import annotations

import dspy

from ragbench.data.base import make_example
from ragbench.experiments.config import RunConfig
from ragbench.experiments.records import Record
from ragbench.experiments.runner import ask
from ragbench.experiments.setup import build


def answer_one(config: RunConfig, question: str | None) -> Record:
    """The record of `question`; of the split's first question where none is given.

    A question of the caller's own has no passages of its own, so it is asked over the whole corpus;
    its record has no gold answer and no scores.

    Raises:
        RagbenchError: something the user can mend.
    """
    if question is not None:
        config = config.model_copy(update={"setting": "pooled"})
    bench = build(config)
    example = bench.examples[0] if question is None else _own(question)
    with bench.active():
        record = ask(bench.program, example)
    if question is not None:
        record["answers"], record["scores"] = [], {}
    return record


def _own(question: str) -> dspy.Example:
    return make_example(qid="asked", question=question, answers=[""])
