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

from ragbench.experiments.score.annotate.annotator import (
    Annotated,
    Annotation,
    Unit,
    numbered,
    shown,
    spending,
)
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
        rows, cut = sentences_of(record) if support_kind(record) != "cited" else ([], False)
        if not rows:
            return ()
        lines = numbered([f"{fact[0]} | {text}" for fact, text in rows])
        inputs = {"sentences": lines, "question": record.question, "answer": record.answer}
        facts = tuple(fact for fact, _ in rows)
        parts = (record.question, record.answer, lines)
        return (Unit(record.qid, parts, inputs, facts, cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> dict[str, Any]:
        """The facts named, and how many numbers name none."""
        used = list(dict.fromkeys(reply.used))
        inside = [number for number in used if 1 <= number <= len(unit.data)]
        named = [list(unit.data[number - 1]) for number in inside]
        return {"facts": named, "out_of_range": len(used) - len(inside)}

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """`record` with the facts attributed to it."""
        if not values or values[0] is None:
            return record
        return replace(record, attribution=[(str(t), int(i)) for t, i in values[0]["facts"]])

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: answers that cite themselves, or have no numbered sentences."""
        counts = annotated.counts()
        values = [value for qid in annotated.units for value in annotated.values(qid) if value]
        silent = [r for r in records if not r.failed and support_kind(r) != "cited"]
        return {
            **counts,
            "attributed": len(values),
            "cited_themselves": sum(not r.failed for r in records) - len(silent),
            "no_sentences": len(silent) - len(annotated.units),
            "numbers_out_of_range": sum(value["out_of_range"] for value in values),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """One line."""
        return [
            f"attributed by {summary['model']}: {summary['attributed']} answers; "
            f"{summary['cited_themselves']} cite themselves, {summary['no_sentences']} have no "
            f"numbered sentences, {summary['numbers_out_of_range']} numbers out of range, "
            + spending(summary)
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


class Evidence(Annotation):
    """Fills `attributed_triples` of every answer that names none."""

    name = "evidence"
    signature = AttributeTriples

    def concerns(self, records: Sequence[Record]) -> bool:
        """Whether the data has gold triples."""
        return any(not record.failed and gold_triples(record) for record in records)

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the data has gold triples, the program named none and passages are there."""
        if not (_is_silent(record) and record.passages):
            return ()
        context, cut = shown(record.passages, max_tokens=MAX_TOKENS)
        inputs = {"context": context, "question": record.question, "answer": record.answer_text}
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def unusable(self, unit: Unit, reply: dspy.Prediction) -> str:
        """Why the triples cannot be used."""
        return f"more than {MOST_TRIPLES} triples" if len(reply.triples) > MOST_TRIPLES else ""

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[str]]:
        """Subject, relation and object of each triple."""
        return [[triple.subject, triple.relation, triple.object] for triple in reply.triples]

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        """`record` with the triples attributed to it."""
        if not values or values[0] is None:
            return record
        return replace(record, attributed_triples=[(s, r, o) for s, r, o in values[0]])

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> dict[str, Any]:
        """Beside the counts: answers with triples of their own, or without passages."""
        counts = annotated.counts()
        of_data = [r for r in records if not r.failed and gold_triples(r)]
        silent = [record for record in of_data if _is_silent(record)]
        return {
            **counts,
            "attributed": counts["asked"] - counts["unscored"],
            "named_themselves": len(of_data) - len(silent),
            "no_passages": len(silent) - len(annotated.units),
        }

    @staticmethod
    def describe(name: str, summary: Mapping[str, Any]) -> list[str]:
        """One line."""
        return [
            f"triples by {summary['model']}: {summary['attributed']} answers; "
            f"{summary['named_themselves']} name their own, {summary['no_passages']} have no "
            "passages, " + spending(summary)
        ]


def _is_silent(record: Record) -> bool:
    return bool(gold_triples(record)) and evidence_kind(record) != "cited"
