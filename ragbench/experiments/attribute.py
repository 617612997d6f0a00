"""Attribution: for programs that do not cite, a model names the sentences an answer rests on.

One extra call per question, counted apart. The sentences are those of the passages that the program
retrieved, numbered in the order first seen; what comes back is a list of `(title, sentence index)`
pairs, the form of HotpotQA's supporting facts, so that `sp_*` and `joint_*` can be computed. It
says what a reader finds needed afterwards, not what the program used: it is marked as attributed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ragbench.experiments.passes import (
    Asking,
    PassResult,
    Task,
    ask_strictly,
    key_of,
    not_failed,
    run_pass,
)
from ragbench.experiments.records import Record
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics.support import support_kind
from ragbench.programs.base import predict
from ragbench.programs.trace import estimate_tokens
from ragbench.signatures.judging import AttributeAnswer

#: Tokens of sentences shown in one call; later ones are left out, and the cut is counted.
MAX_TOKENS = 6000

Fact = tuple[str, int]


@dataclass(frozen=True)
class Attributed:
    """Facts per question (absent where none could be had), and what the pass came to."""

    facts: dict[str, list[list[Any]]]
    model: str
    summary: dict[str, Any]


def attribute(folder: Path, records: Sequence[Record], asking: Asking) -> Attributed:
    """The sentences that every answer without citations of its own rests on.

    Raises:
        RagbenchError: the LM cannot be called, or the journal cannot be written.
    """
    answered = not_failed(records)
    silent = [r for r in answered if support_kind({**r, "attribution": None}) is None]
    shown = {record["qid"]: numbered(record) for record in silent}
    tasks = [
        _task(record, shown[record["qid"]][0], asking.lm)
        for record in silent
        if shown[record["qid"]][0]
    ]
    result = run_pass(folder, tasks, asking)
    values = {task.qid: result.results.get(task.key) for task in tasks}
    facts = {q: found.value["facts"] for q, found in values.items() if found and found.value}
    cited = len(answered) - len(silent)
    return Attributed(facts, asking.lm.model, _summary(shown, facts, values, cited, asking, result))


def _summary(
    shown: dict[str, tuple[list[tuple[Fact, str]], bool]],
    facts: dict[str, list[list[Any]]],
    values: dict[str, Any],
    cited: int,
    asking: Asking,
    result: PassResult,
) -> dict[str, Any]:
    found = [value.value for value in values.values() if value and value.value]
    return {
        "model": asking.lm.model,
        "attributed": len(facts),
        "cited_themselves": cited,
        "no_sentences": sum(not sentences for sentences, _ in shown.values()),
        "unscored": len(values) - len(facts) - result.left,
        "not_asked": result.left,
        "cut": sum(cut for _, cut in shown.values()),
        "numbers_out_of_range": sum(value["out_of_range"] for value in found),
        "as_if": asdict(result.totals()),
    }


def numbered(record: Record) -> tuple[list[tuple[Fact, str]], bool]:
    """The sentences that can be named, each with the fact it is, and whether some were cut.

    Of a paragraph these are its sentences by its title; of a chunk those whose place in the
    paragraphs is known (`holds`). Passages without known sentences give none.
    """
    rows: list[tuple[Fact, str]] = []
    left = MAX_TOKENS
    for passage in record["passages"]:
        for fact, sentence in zip(_facts(passage), passage.get("sentences", ()), strict=False):
            if not sentence:
                continue
            left -= estimate_tokens(sentence) + estimate_tokens(fact[0]) + 4
            if left < 0:
                return rows, True
            rows.append((fact, sentence))
    return rows, False


def _facts(passage: Record) -> list[Fact]:
    sentences = passage.get("sentences", ())
    if "holds" in passage:
        held = [(str(title), int(index)) for title, index in passage["holds"]]
        return held if len(held) == len(sentences) else []
    return [(passage["title"], index) for index in range(len(sentences))]


def _task(record: Record, rows: Sequence[tuple[Fact, str]], lm: RagbenchLM) -> Task:
    lines = [f"[{n}] {fact[0]} | {text}" for n, (fact, text) in enumerate(rows, start=1)]
    key = key_of("attribution", lm.model, record["question"], record["answer"], lines)
    ask = partial(_ask, record, lines, [fact for fact, _ in rows], lm)
    return Task(record["qid"], "attribution", key, ask)


def _ask(
    record: Record, lines: Sequence[str], facts: Sequence[Fact], lm: RagbenchLM
) -> dict[str, Any]:
    reply = ask_strictly(
        predict(AttributeAnswer),
        lm,
        sentences=list(lines),
        question=record["question"],
        answer=record["answer"],
    )
    used = list(dict.fromkeys(reply.used))
    inside = [number for number in used if 1 <= number <= len(facts)]
    named = [list(facts[number - 1]) for number in inside]
    return {"facts": named, "out_of_range": len(used) - len(inside)}
