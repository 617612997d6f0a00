"""Causes of wrong answers by a model, where the rules see only that two strings differ.

Rules decide most causes from the record, and these stay as they are. Whether a wrong answer means
the same, is a part of the gold answer, or another thing of its kind is a question of meaning
(`metrics.errors.UNDECIDED` lists the causes): there a model chooses one of six, and its causes are
marked as the model's. A reply that cannot be read, after a second try, leaves the cause undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ragbench.experiments.passes import Asking, Result, Task, ask_strictly, key_of, run_pass
from ragbench.experiments.records import Record
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics.errors import UNDECIDED, Cause
from ragbench.metrics.retrieval import union
from ragbench.programs.base import predict
from ragbench.programs.trace import render
from ragbench.retrievers.base import Passage
from ragbench.signatures.judging import ExplainMistake

#: Tokens of passages shown with a question.
CONTEXT_TOKENS = 6000


@dataclass(frozen=True)
class Explained:
    """The model's cause of each question that it was asked about, and what the pass came to."""

    causes: Mapping[str, Cause]
    summary: Mapping[str, Any]


def explain(folder: Path, wrong: Sequence[tuple[Record, Cause]], asking: Asking) -> Explained:
    """The causes that rules cannot decide, among those of `wrong`, by a model.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    open_ones = [(record, cause) for record, cause in wrong if cause.name in UNDECIDED]
    tasks = {record["qid"]: _task(record, asking.lm) for record, _ in open_ones}
    result = run_pass(folder, list(tasks.values()), asking)
    causes = {
        record["qid"]: _cause(record, cause, result.results[tasks[record["qid"]].key])
        for record, cause in open_ones
        if tasks[record["qid"]].key in result.results
    }
    why = Counter(found.why for found in result.results.values() if found.value is None)
    summary = {
        "model": asking.lm.model,
        "asked": len(causes),
        "undecided": sum(cause.kind == "undecided" for cause in causes.values()),
        "undecided_because": dict(why.most_common(5)),
        "not_asked": len(open_ones) - len(causes),
        "as_if": asdict(result.totals()),
        "billed": asdict(result.billed()),
    }
    return Explained(causes, summary)


def _cause(record: Record, rule: Cause, found: Result) -> Cause:
    if found.value is None:
        return Cause(rule.level, "undecided", found.why, rule.hop, by="model")
    gold = set(record["gold_pids"])
    all_there = bool(gold) and gold <= set(union(record))
    lacking = ("data", "answer_not_in_gold") if all_there else ("retrieval", "answer_not_seen")
    level, kind = {
        "same_meaning": ("data", "metrics_disagree"),
        "part_of_it": ("reading", "partial"),
        "wrong_entity": ("reading", "same_type"),
        "wrong_kind": ("reading", "other_type"),
        "no_answer": ("control", "gave_up"),
        "passages_lack_it": lacking,
    }[found.value]
    said = str(found.value).replace("_", " ")
    return Cause(level, kind, f"the model says: {said}", by="model")  # type: ignore[arg-type]


def _task(record: Record, lm: RagbenchLM) -> Task:
    passages = [Passage(p["pid"], p["title"], p["text"]) for p in record["passages"]]
    context = render(passages, max_tokens=CONTEXT_TOKENS)
    shown = (context, record["question"], record["answers"], record["answer"])
    return Task(
        record["qid"], "mistake", key_of("mistake", lm.model, *shown), partial(_ask, *shown, lm)
    )


def _ask(context: list[str], question: str, golds: list[str], answer: str, lm: RagbenchLM) -> str:
    reply = ask_strictly(
        predict(ExplainMistake),
        lm,
        context=context,
        question=question,
        gold_answers=golds,
        answer=answer,
    )
    return str(reply.mistake)
