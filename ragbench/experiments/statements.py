"""Long answers scored statement by statement, as GraphRAG-Bench does, by a model that judges.

Answer and gold answer are split into statements, which are then matched by number: an answer's
statement that gold supports is a true positive, any other a false positive, a gold statement that
the answer lacks a false negative. Coverage is the share of gold statements that the answer has
(published code splits the gold answer again for it), faithfulness the share of the answer's
statements that the retrieved passages support. A reply that cannot be read, splits a text into
nothing or names a number that is not there leaves the question unscored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from ragbench.experiments.passes import (
    Asking,
    Task,
    UnusableError,
    ask_strictly,
    key_of,
    not_failed,
    run_pass,
)
from ragbench.experiments.records import Record
from ragbench.lms.lm import RagbenchLM
from ragbench.metrics.graphrag_bench import (
    SCORES_OF_TYPE,
    answer_correctness,
    share,
    statement_f1,
)
from ragbench.programs.base import predict
from ragbench.programs.trace import render
from ragbench.retrievers.base import Passage
from ragbench.retrievers.embedders import Embedder
from ragbench.signatures.judging import MatchStatements, SplitStatements, SupportedStatements

#: Tokens of passages shown when faithfulness is judged.
CONTEXT_TOKENS = 8000


@dataclass(frozen=True)
class StatementScores:
    """Scores per question and metric, and what the pass came to."""

    scores: Mapping[str, Mapping[str, float | None]]
    summary: Mapping[str, Any]


def score_statements(
    folder: Path, records: Sequence[Record], asking: Asking, embedder: Embedder
) -> StatementScores:
    """The scores of every answered question of one of the benchmark's four types.

    Raises:
        RagbenchError: the LM or the embedder cannot be had, or the journal cannot be written.
    """
    chosen = [record for record in not_failed(records) if record["qtype"] in SCORES_OF_TYPE]
    tasks = [_task(record, asking.lm, embedder) for record in chosen]
    result = run_pass(folder, tasks, asking)
    found = {task.qid: result.results[task.key] for task in tasks if task.key in result.results}
    scores = {qid: _scores(one.value) for qid, one in found.items()}
    unscored = [one for one in found.values() if one.value is None]
    summary = {
        "model": asking.lm.model,
        "embedder": embedder.identity,
        "scored": len(found) - len(unscored),
        "unscored": len(unscored),
        "unscored_because": dict(Counter(one.why for one in unscored).most_common(5)),
        "not_asked": len(tasks) - len(found),
        "other_types": len(not_failed(records)) - len(chosen),
        "as_if": asdict(result.totals()),
    }
    return StatementScores(scores, summary)


def _scores(value: Mapping[str, Any] | None) -> dict[str, float | None]:
    if value is None:
        return {"answer_correctness": None, "coverage": None, "faithfulness": None}
    said, gold = value["answer_statements"], value["gold_statements"]
    factual = statement_f1(value["supported"], said - value["supported"], gold - value["covered"])
    faithful = value["faithful"]
    return {
        "answer_correctness": answer_correctness(factual, value["cosine"]),
        "coverage": share(value["covered"], gold),
        "faithfulness": None if faithful is None else share(faithful, said),
    }


def _task(record: Record, lm: RagbenchLM, embedder: Embedder) -> Task:
    faithful = "faithfulness" in SCORES_OF_TYPE[record["qtype"]]
    pids = [passage["pid"] for passage in record["passages"]] if faithful else []
    key = key_of(
        "statements", lm.model, embedder.identity, record["question"], record["answers"][0],
        record["answer"], pids,
    )  # fmt: skip
    return Task(record["qid"], "statements", key, partial(_ask, record, lm, embedder, faithful))


def _ask(record: Record, lm: RagbenchLM, embedder: Embedder, faithful: bool) -> dict[str, Any]:
    said = _split(record["question"], record["answer"], lm)
    gold = _split(record["question"], record["answers"][0], lm)
    match = ask_strictly(
        predict(MatchStatements),
        lm,
        question=record["question"],
        answer_statements=_numbered(said),
        gold_statements=_numbered(gold),
    )
    vectors = embedder.embed([record["answer"], record["answers"][0]])
    return {
        "answer_statements": len(said),
        "gold_statements": len(gold),
        "supported": _count(match.supported, len(said)),
        "covered": _count(match.covered, len(gold)),
        "faithful": _faithful(record, said, lm) if faithful else None,
        "cosine": round(float(vectors[0] @ vectors[1]), 6),
    }


def _split(question: str, text: str, lm: RagbenchLM) -> list[str]:
    reply: dspy.Prediction = ask_strictly(
        predict(SplitStatements), lm, question=question, text=text
    )
    statements = [statement.strip() for statement in reply.statements if statement.strip()]
    if not statements:
        raise UnusableError("a text was split into no statements")
    return statements


def _faithful(record: Record, said: Sequence[str], lm: RagbenchLM) -> int:
    passages = [Passage(p["pid"], p["title"], p["text"]) for p in record["passages"]]
    if not passages:
        return 0
    reply = ask_strictly(
        predict(SupportedStatements),
        lm,
        context=render(passages, max_tokens=CONTEXT_TOKENS),
        statements=_numbered(said),
    )
    return _count(reply.supported, len(said))


def _numbered(statements: Sequence[str]) -> list[str]:
    return [f"[{number}] {text}" for number, text in enumerate(statements, start=1)]


def _count(numbers: Sequence[int], n: int) -> int:
    found = set(numbers)
    if not found <= set(range(1, n + 1)):
        raise UnusableError("a number that no statement has")
    return len(found)
