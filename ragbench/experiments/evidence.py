"""Evidence: for programs that name no triples, a model writes the facts an answer is derived from.

One call per question whose data has gold triples (2WikiMultiHopQA), apart from the one that names
sentences. The passages that the program retrieved are shown; the data's relations are not listed,
so a right fact in other words counts as wrong. It is what a reader derives afterwards, and marked
as attributed. A reply that cannot be read, or has more than `MOST_TRIPLES`, is asked for once more
and then has no score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from ragbench.experiments.passes import Asking, Task, ask_strictly, key_of, not_failed, run_pass
from ragbench.experiments.records import Record
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics.support import evidence_kind, gold_triples
from ragbench.programs.base import predict
from ragbench.programs.trace import render
from ragbench.retrievers.base import Passage
from ragbench.signatures.judging import AttributeTriples

#: Tokens of passages shown in one call; later ones are left out, and the cut is counted.
MAX_TOKENS = 6000
#: Twice what the longest gold chains have.
MOST_TRIPLES = 10


@dataclass(frozen=True)
class Evidence:
    """Triples per question (absent where none could be had), and what the pass came to."""

    triples: dict[str, list[list[str]]]
    summary: dict[str, Any]


def attribute_triples(folder: Path, records: Sequence[Record], asking: Asking) -> Evidence | None:
    """The triples of every answer that names none; None where the data has no gold triples.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    answered = [record for record in not_failed(records) if gold_triples(record)]
    if not answered:
        return None
    silent = [r for r in answered if evidence_kind({**r, "attributed_triples": None}) is None]
    tasks = [_task(record, asking.lm) for record in silent if record["passages"]]
    result = run_pass(folder, tasks, asking)
    found = {task.qid: result.results[task.key] for task in tasks if task.key in result.results}
    triples = {qid: one.value for qid, one in found.items() if one.value is not None}
    why = Counter(one.why for one in found.values() if one.value is None)
    summary = {
        "model": asking.lm.model,
        "attributed": len(triples),
        "named_themselves": len(answered) - len(silent),
        "no_passages": len(silent) - len(tasks),
        "unscored": len(found) - len(triples),
        "unscored_because": dict(why.most_common(5)),
        "not_asked": len(tasks) - len(found),
        "cut": sum(_shown(r) != _shown(r, 10**9) for r in silent),
        "as_if": asdict(result.totals()),
        "billed": asdict(result.billed()),
    }
    return Evidence(triples, summary)


def _shown(record: Record, max_tokens: int = MAX_TOKENS) -> list[str]:
    passages = [Passage(p["pid"], p["title"], p["text"]) for p in record["passages"]]
    return render(passages, max_tokens=max_tokens)


def _task(record: Record, lm: RagbenchLM) -> Task:
    shown = (_shown(record), record["question"], record["answer"])
    return Task(
        record["qid"], "evidence", key_of("evidence", lm.model, *shown), partial(_ask, *shown, lm)
    )


def _ask(context: list[str], question: str, answer: str, lm: RagbenchLM) -> list[list[str]]:
    def wrong(reply: dspy.Prediction) -> str:
        n = len(reply.triples)
        return f"more than {MOST_TRIPLES} triples" if n > MOST_TRIPLES else ""

    reply = ask_strictly(
        predict(AttributeTriples), lm, wrong=wrong,
        context=context, question=question, answer=answer,
    )  # fmt: skip
    return [[triple.subject, triple.relation, triple.object] for triple in reply.triples]
