"""What models are asked about answers beside verdicts: what they rest on, and their claims.

- `Attribution`: for programs that do not cite, a model names the sentences that an answer rests on,
  in the form of HotpotQA's supporting facts, so that `sp_*` and `joint_*` can be computed: of the
  passages that the program retrieved, numbered in the order first seen. `Evidence` writes the facts
  that the answer is derived from, where the data has gold triples (2WikiMultiHopQA); the data's
  relations are not listed, so a right fact in other words counts as wrong. Both say what a reader
  finds needed afterwards, not what the program used, and are marked as attributed.
- `Grounding`: which claims the passages support. The claims are the sentences of the thoughts, and
  of the answer (`metrics.judged`); a short answer is put as an answer to its question. The judge
  labels at most `MOST_CLAIMS` at once; where a claim has no usable label, the question is unscored
  in what it concerns. What no passage was retrieved for is not supported, and not asked about.
- `Statements`: long answers scored as GraphRAG-Bench does. Answer and gold answer are split into
  statements, which are then matched by number: an answer's statement that gold supports is a true
  positive, any other a false positive, a gold statement that the answer lacks a false negative.
  Coverage is the share of gold statements that the answer has (published code splits the gold
  answer again for it), faithfulness the share of the answer's statements that the passages support.
  A reply that splits a text into nothing or names a number that is not there leaves the question
  unscored.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import dspy

from ragbench import metrics, signatures
from ragbench.experiments.score import AnnotationSummary
from ragbench.experiments.score.annotation import (
    Annotated,
    Annotation,
    Scores,
    Unit,
    numbered,
    shown,
    spending,
)
from ragbench.experiments.score.asking import UnusableError, ask_strictly
from ragbench.lms.lm import RagbenchLM
from ragbench.record import Fact, Record, ShownPassage
from ragbench.retrievers.embedders import Embedder
from ragbench.tokens import estimate_tokens

#: Tokens of sentences or passages shown to who attributes; later ones are left out, counted as cut.
MAX_TOKENS = 6000
#: The same for who judges claims and statements.
CONTEXT_TOKENS = 8000
#: Twice what the longest gold chains have.
MOST_TRIPLES = 10
MOST_CLAIMS = 8

#: Whether the passages support a claim; None for unscored.
Label = bool | None


class Attribution(Annotation):
    """Fills `attribution` of every answer without citations of its own."""

    name = "attribution"
    signature = signatures.AttributeAnswer
    #: The field of a record that it fills.
    field = "attribution"

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the program cites nothing and sentences are known."""
        if metrics.support_kind(record) == "cited":
            return ()
        rows, cut = sentences_of(record)
        if not rows:
            return ()
        lines = numbered([f"{fact[0]} | {text}" for fact, text in rows])
        inputs = {"sentences": lines, "question": record.question, "answer": record.answer}
        key_values = (record.question, record.answer, lines)
        return (Unit(record.qid, key_values, inputs, rows, cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[Any]]:
        if not set(reply.used) <= set(range(1, len(unit.data) + 1)):
            raise UnusableError("a number that no sentence has")
        return [list(unit.data[number - 1][0]) for number in dict.fromkeys(reply.used)]

    def fill(self, record: Record, values: Sequence[Any]) -> Record:
        if not values or values[0] is None:
            return record
        named: Any = list(map(tuple, values[0]))
        return replace(record, **{self.field: named})

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> AnnotationSummary:
        counts = annotated.counts()
        return {**counts, "attributed": counts["asked"] - counts["unscored"]}

    @staticmethod
    def describe(name: str, summary: AnnotationSummary) -> list[str]:
        noun = "sentences" if name == "attribution" else "triples"
        return [
            f"{noun} by {summary['model']}: {summary['attributed']} answers; {spending(summary)}"
        ]


def sentences_of(record: Record) -> tuple[list[tuple[Fact, str]], bool]:
    """The sentences that can be named, each with the fact it is, and whether some were cut.

    Of a paragraph these are its sentences by its title; of a chunk those whose place in the
    paragraphs is known (`holds`). Passages without known sentences give none.
    """
    rows: list[tuple[Fact, str]] = []
    budget = MAX_TOKENS
    for passage in record.passages:
        for fact, sentence in zip(_facts(passage), passage.sentences, strict=False):
            if not sentence:
                continue
            budget -= estimate_tokens(sentence) + estimate_tokens(fact[0]) + 4
            if budget < 0:
                return rows, True
            rows.append((fact, sentence))
    return rows, False


def _facts(passage: ShownPassage) -> list[Fact]:
    sentences = passage.sentences
    if passage.holds is not None:
        if len(passage.holds) == len(sentences):
            return list(passage.holds)
        return []
    return [(passage.title, index) for index in range(len(sentences))]


class Evidence(Attribution):
    """Fills `attributed_triples` of every answer that names none."""

    name = "evidence"
    signature = signatures.AttributeTriples
    field = "attributed_triples"

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the data has gold triples, the program named none and passages are there."""
        named = metrics.evidence_kind(record) == "cited"
        if named or not (metrics.gold_triples(record) and record.passages):
            return ()
        context, cut = shown(record.passages, max_tokens=MAX_TOKENS)
        inputs = {"context": context, "question": record.question, "answer": record.answer_text}
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[str]]:
        if len(reply.triples) > MOST_TRIPLES:
            raise UnusableError(f"more than {MOST_TRIPLES} triples")
        return [[triple.subject, triple.relation, triple.object] for triple in reply.triples]


class Grounding(Annotation):
    """Fills the judged chain fidelity and hallucination rate."""

    name = "grounding"
    signature = signatures.LabelClaims

    def units(self, record: Record) -> Sequence[Unit]:
        """Parts of at most `MOST_CLAIMS` claims, of the thoughts and then of the answer."""
        if not record.passages:
            return []
        context, cut = shown(record.passages, max_tokens=CONTEXT_TOKENS)
        units = []
        for claims in _claims(record):
            for batch in _parts(claims):
                inputs = {"context": context, "claims": numbered(batch)}
                units.append(Unit(record.qid, (context, batch), inputs, cut=cut))
        return units

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[bool]:
        if len(reply.verdicts) != len(unit.inputs["claims"]):
            raise UnusableError("another number of verdicts than of claims")
        return [label == "supported" for label in reply.verdicts]

    def scores(self, record: Record, values: Sequence[Any]) -> Scores:
        """Both metrics; None where a claim has no label, or there is no claim."""
        chain, answer = map(_supported_share, _labels(record, values))
        return {
            "chain_fidelity_judged": chain,
            "hallucination_rate_judged": None if answer is None else 1 - answer,
        }

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> AnnotationSummary:
        """Add the labels of claims to the counts."""
        labels: Counter[Label] = Counter()
        for record in records:
            if record.failed:
                continue
            for claim_labels in _labels(record, annotated.values(record.qid)):
                labels.update(claim_labels)
        return {
            **annotated.counts(),
            "claims": labels.total(),
            "supported": labels[True],
            "unsupported": labels[False],
            "unscored": labels[None],
        }

    @staticmethod
    def describe(name: str, summary: AnnotationSummary) -> list[str]:
        return [
            f"{summary['claims']} claims judged by {summary['model']}: {summary['supported']} "
            f"supported, {summary['unsupported']} not; {spending(summary)}",
        ]


def _claims(record: Record) -> tuple[Sequence[str], Sequence[str]]:
    """The claims of a record's thoughts, and of its answer, in words."""
    answer = []
    for text in metrics.claims_of_answer(record):
        if not metrics.says_something(text):
            text = f'The answer to "{record.question}" is: {text}'
        answer.append(text)
    return metrics.claims_of_chain(record), answer


def _parts(claims: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(claims), MOST_CLAIMS):
        yield list(claims[start : start + MOST_CLAIMS])


def _labels(record: Record, values: Sequence[Any]) -> list[list[Label]]:
    """The label of each claim of the thoughts, and of the answer, from the `values` of units."""
    every = iter(values)
    rows = []
    for claims in _claims(record):
        labels: list[Label] = []
        for batch in _parts(claims):
            if record.passages:
                batch_labels = next(every, None)
                labels += batch_labels or [None] * len(batch)
            else:
                labels += [False] * len(batch)
        rows.append(labels)
    return rows


def _supported_share(labels: Sequence[Label]) -> float | None:
    if None in labels:
        return None
    return metrics.share(labels.count(True), len(labels))


class Statements(Annotation):
    """Fills the scores of every answered question of one of the benchmark's four types."""

    name = "statements"
    signature = signatures.MatchStatements

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def units(self, record: Record) -> Sequence[Unit]:
        """One, where the question has one of the four types."""
        if record.qtype not in metrics.SCORES_OF_TYPE:
            return ()
        pids: list[str] = []
        context = None
        cut = False
        calls = 3
        if "faithfulness" in metrics.SCORES_OF_TYPE[record.qtype]:
            pids = [passage.pid for passage in record.passages]
            context, cut = shown(record.passages, max_tokens=CONTEXT_TOKENS)
            calls = 4
        texts = (record.question, record.answers[0], record.answer_text)
        key_values = (self.embedder.identity, *texts, pids)
        inputs = dict(zip(("question", "gold", "answer"), texts, strict=True))
        return (Unit(record.qid, key_values, inputs, context, cut, calls),)

    def ask(self, unit: Unit, lm: RagbenchLM) -> dict[str, Any]:
        question, gold_text, text = unit.inputs.values()
        statements, gold = (_split(question, answer_text, lm) for answer_text in (text, gold_text))
        both = {"answer_statements": numbered(statements), "gold_statements": numbered(gold)}

        def matched(reply: dspy.Prediction) -> dict[str, int]:
            return {
                "supported": _count(reply.supported, len(statements)),
                "covered": _count(reply.covered, len(gold)),
            }

        match = ask_strictly(self.signature, lm, {"question": question, **both}, matched)
        vectors = self.embedder.embed([text, gold_text])
        return {
            "answer_statements": len(statements),
            "gold_statements": len(gold),
            **match,
            "faithful": None if unit.data is None else _faithful(unit.data, statements, lm),
            "cosine": round(float(vectors[0] @ vectors[1]), 6),
        }

    def scores(self, record: Record, values: Sequence[Any]) -> Scores:
        if not values:
            return {}
        value = values[0]
        if value is None:
            return dict.fromkeys(metrics.ASKED)
        stated = value["answer_statements"]
        gold = value["gold_statements"]
        right = value["supported"]
        faithful = value["faithful"]
        factual = metrics.statement_f1(right, stated - right, gold - value["covered"])
        return {
            "answer_correctness": metrics.answer_correctness(factual, value["cosine"]),
            "coverage": metrics.share(value["covered"], gold),
            "faithfulness": None if faithful is None else metrics.share(faithful, stated),
        }

    def summarize(self, records: Sequence[Record], annotated: Annotated) -> AnnotationSummary:
        """Beside the counts: the embedder, and the answers of other question types."""
        counts = annotated.counts()
        return {
            **counts,
            "embedder": self.embedder.identity,
            "scored": counts["asked"] - counts["unscored"],
            "other_types": sum(not r.failed for r in records) - len(annotated.units),
        }

    @staticmethod
    def describe(name: str, summary: AnnotationSummary) -> list[str]:
        return [
            f"statements matched by {summary['model']}, similarity by {summary['embedder']}: "
            f"{summary['scored']} scored, {summary['other_types']} of other question types, "
            + spending(summary)
        ]


def _split(question: str, text: str, lm: RagbenchLM) -> list[str]:
    def read(reply: dspy.Prediction) -> list[str]:
        statements = []
        for statement in reply.statements:
            if statement.strip():
                statements.append(statement.strip())
        if not statements:
            raise UnusableError("a text was split into no statements")
        return statements

    inputs = {"question": question, "text": text}
    return ask_strictly(signatures.SplitStatements, lm, inputs, read)


def _faithful(context: Sequence[str], statements: Sequence[str], lm: RagbenchLM) -> int:
    if not context:
        return 0
    inputs = {"context": list(context), "statements": numbered(statements)}
    n = len(statements)
    return ask_strictly(
        signatures.SupportedStatements, lm, inputs, lambda reply: _count(reply.supported, n)
    )


def _count(numbers: Sequence[int], n: int) -> int:
    distinct = set(numbers)
    if not distinct <= set(range(1, n + 1)):
        raise UnusableError("a number that no statement has")
    return len(distinct)
