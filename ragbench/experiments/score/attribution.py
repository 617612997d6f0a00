"""Attribution: for programs that do not cite, a model names what an answer rests on.

`Attribution` names sentences, in the form of HotpotQA's supporting facts, so that `sp_*` and
`joint_*` can be computed: of the passages that the program retrieved, numbered in the order first
seen. `Evidence` writes the facts that the answer is derived from, where the data has gold triples
(2WikiMultiHopQA); the data's relations are not listed, so a right fact in other words counts as
wrong. Both say what a reader finds needed afterwards, not what the program used, and are marked as
attributed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from ragbench.experiments.score.asking import UnusableError
from ragbench.metrics import evidence_kind, gold_triples, support_kind
from ragbench.record import Fact, Record, ShownPassage
from ragbench.signatures import AttributeAnswer, AttributeTriples
from ragbench.tokens import estimate_tokens

#: Tokens of sentences or passages shown in one call; later ones are left out, and counted as cut.
MAX_TOKENS = 6000
#: Twice what the longest gold chains have.
MOST_TRIPLES = 10


class Attribution(Annotation):
    """Fills `attribution` of every answer without citations of its own."""

    name = "attribution"
    signature = AttributeAnswer

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the program cites nothing and sentences are known."""
        rows, cut = ([], False) if support_kind(record) == "cited" else sentences_of(record)
        if not rows:
            return ()
        lines = numbered([f"{fact[0]} | {text}" for fact, text in rows])
        inputs = {"sentences": lines, "question": record.question, "answer": record.answer}
        facts = tuple(fact for fact, _ in rows)
        parts = (record.question, record.answer, lines)
        return (Unit(record.qid, parts, inputs, facts, cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[Any]]:
        """The facts named."""
        if not set(reply.used) <= set(range(1, len(unit.data) + 1)):
            raise UnusableError("a number that no sentence has")
        return [list(unit.data[number - 1]) for number in dict.fromkeys(reply.used)]

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """`record` with the facts attributed to it."""
        if not values or values[0] is None:
            return record
        return replace(record, attribution=[(str(t), int(i)) for t, i in values[0]])

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """The counts, and of how many answers something was named."""
        counts = annotated.counts()
        return {**counts, "attributed": counts["asked"] - counts["unscored"]}

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """One line."""
        what = "sentences" if name == "attribution" else "triples"
        return [
            f"{what} by {summary['model']}: {summary['attributed']} answers; {spending(summary)}"
        ]


def sentences_of(record: Record) -> tuple[list[tuple[Fact, str]], bool]:
    """The sentences that can be named, each with the fact it is, and whether some were cut.

    Of a paragraph these are its sentences by its title; of a chunk those whose place in the
    paragraphs is known (`holds`). Passages without known sentences give none.
    """
    rows: list[tuple[Fact, str]] = []
    left = MAX_TOKENS
    for passage in record.passages:
        for fact, sentence in zip(_facts(passage), passage.sentences, strict=False):
            if not sentence:
                continue
            left -= estimate_tokens(sentence) + estimate_tokens(fact[0]) + 4
            if left < 0:
                return rows, True
            rows.append((fact, sentence))
    return rows, False


def _facts(passage: ShownPassage) -> list[Fact]:
    sentences = passage.sentences
    if passage.holds is not None:
        return list(passage.holds) if len(passage.holds) == len(sentences) else []
    return [(passage.title, index) for index in range(len(sentences))]


class Evidence(Attribution):
    """Fills `attributed_triples` of every answer that names none."""

    name = "evidence"
    signature = AttributeTriples

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the data has gold triples, the program named none and passages are there."""
        named = evidence_kind(record) == "cited"
        if named or not (gold_triples(record) and record.passages):
            return ()
        context, cut = shown(record.passages, max_tokens=MAX_TOKENS)
        inputs = {"context": context, "question": record.question, "answer": record.answer_text}
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[str]]:
        """Subject, relation and object of each triple."""
        if len(reply.triples) > MOST_TRIPLES:
            raise UnusableError(f"more than {MOST_TRIPLES} triples")
        return [[triple.subject, triple.relation, triple.object] for triple in reply.triples]

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """`record` with the triples attributed to it."""
        if not values or values[0] is None:
            return record
        return replace(record, attributed_triples=[(s, r, o) for s, r, o in values[0]])
