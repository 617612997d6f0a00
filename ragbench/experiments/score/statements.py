"""Long answers scored statement by statement, as GraphRAG-Bench does, by a model that judges.

Answer and gold answer are split into statements, which are then matched by number: an answer's
statement that gold supports is a true positive, any other a false positive, a gold statement that
the answer lacks a false negative. Coverage is the share of gold statements that the answer has
(published code splits the gold answer again for it), faithfulness the share of the answer's
statements that the retrieved passages support. A reply that cannot be read, splits a text into
nothing or names a number that is not there leaves the question unscored.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.experiments.score.annotation import (
    Annotated,
    Annotation,
    Unit,
    numbered,
    shown,
    spending,
)
from ragbench.experiments.score.asking import UnusableError, ask_strictly
from ragbench.lms import RagbenchLM
from ragbench.metrics import ASKED, SCORES_OF_TYPE, answer_correctness, share, statement_f1
from ragbench.record import Record
from ragbench.retrievers.embedders import Embedder
from ragbench.signatures import MatchStatements, SplitStatements, SupportedStatements

#: Tokens of passages shown when faithfulness is judged.
CONTEXT_TOKENS = 8000


class Statements(Annotation):
    """Fills the scores of every answered question of one of the benchmark's four types."""

    name = "statements"
    signature = MatchStatements

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the question has one of the four types."""
        if record.qtype not in SCORES_OF_TYPE:
            return ()
        faithful = "faithfulness" in SCORES_OF_TYPE[record.qtype]
        pids = [passage.pid for passage in record.passages] if faithful else []
        texts = (record.question, record.answers[0], record.answer_text)
        parts = (self.embedder.identity, *texts, pids)
        inputs = dict(zip(("question", "gold", "answer"), texts, strict=True))
        if not faithful:
            return (Unit(record.qid, parts, inputs, calls=3),)
        context, cut = shown(record.passages, max_tokens=CONTEXT_TOKENS)
        return (Unit(record.qid, parts, inputs, context, cut, calls=4),)

    def ask(self, unit: Unit, lm: RagbenchLM) -> dict[str, Any]:
        """How many statements there are, match and are faithful."""
        question, gold_text, text = unit.inputs.values()
        said, gold = (_split(question, each, lm) for each in (text, gold_text))
        both = {"answer_statements": numbered(said), "gold_statements": numbered(gold)}

        def matched(reply: dspy.Prediction) -> dict[str, int]:
            return {
                "supported": _count(reply.supported, len(said)),
                "covered": _count(reply.covered, len(gold)),
            }

        match = ask_strictly(self.signature, lm, {"question": question, **both}, matched)
        vectors = self.embedder.embed([text, gold_text])
        return {
            "answer_statements": len(said),
            "gold_statements": len(gold),
            **match,
            "faithful": None if unit.data is None else _faithful(unit.data, said, lm),
            "cosine": round(float(vectors[0] @ vectors[1]), 6),
        }

    def scores(self, record: Record, values: Sequence[Any]) -> dict[str, float | None]:
        """Correctness, coverage and faithfulness."""
        value = next(iter(values), None)
        if value is None:
            return dict.fromkeys(ASKED) if values else {}
        said, gold = value["answer_statements"], value["gold_statements"]
        right, faithful = value["supported"], value["faithful"]
        factual = statement_f1(right, said - right, gold - value["covered"])
        return {
            "answer_correctness": answer_correctness(factual, value["cosine"]),
            "coverage": share(value["covered"], gold),
            "faithfulness": None if faithful is None else share(faithful, said),
        }

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: the embedder, and the answers of other question types."""
        counts = annotated.counts()
        return {
            **counts,
            "embedder": self.embedder.identity,
            "scored": counts["asked"] - counts["unscored"],
            "other_types": sum(not r.failed for r in records) - len(annotated.units),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """One line."""
        return [
            f"statements matched by {summary['model']}, similarity by {summary['embedder']}: "
            f"{summary['scored']} scored, {summary['other_types']} of other question types, "
            + spending(summary)
        ]


def _split(question: str, text: str, lm: RagbenchLM) -> list[str]:
    def read(reply: dspy.Prediction) -> list[str]:
        statements = [statement.strip() for statement in reply.statements if statement.strip()]
        if not statements:
            raise UnusableError("a text was split into no statements")
        return statements

    said: list[str] = ask_strictly(SplitStatements, lm, {"question": question, "text": text}, read)
    return said


def _faithful(context: Sequence[str], said: Sequence[str], lm: RagbenchLM) -> int:
    if not context:
        return 0
    inputs = {"context": list(context), "statements": numbered(said)}
    count: int = ask_strictly(
        SupportedStatements, lm, inputs, lambda reply: _count(reply.supported, len(said))
    )
    return count


def _count(numbers: Sequence[int], n: int) -> int:
    distinct = set(numbers)
    if not distinct <= set(range(1, n + 1)):
        raise UnusableError("a number that no statement has")
    return len(distinct)
