"""Annotations of answers other than verdicts: supporting sentences, triples and claims.

- `Attribution`: a model names the sentences that support an answer if the program does not cite.
  The format is that of HotpotQA's supporting facts, so `sp_*` and `joint_*` can be computed. The
  sentences are those of the retrieved passages, numbered in the order first seen. `Evidence`
  writes the triples from which the answer is derived if the data has gold triples
  (2WikiMultiHopQA). The prompt does not list the data's relations, so a correct triple in other
  words counts as wrong. Both state the facts that a reader considers necessary, not
  those that the program used, and are marked as attributed.
- `Grounding`: the claims that the passages support. The claims are the sentences of the thoughts
  and of the answer (`metrics.judged`). A short answer is rewritten as a sentence that answers the
  question. The judge labels at most `MOST_CLAIMS` claims per call. If a claim has no usable label,
  the metric of that part (thoughts or answer) is unscored. If no passage was retrieved, all claims
  are unsupported without a call.
- `Statements`: scores of long answers as in GraphRAG-Bench. Answer and gold answer are split into
  statements, which are then matched by number. A supported answer statement is a true positive, any
  other a false positive. A gold statement that the answer lacks is a false negative. Coverage is
  the fraction of gold statements in the answer (published code splits the gold answer again for
  it). Faithfulness is the fraction of answer statements that the passages support. If a reply has
  no statements or names a number that does not exist, the question is unscored.
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
    context_lines,
    numbered,
    spending,
)
from ragbench.experiments.score.asking import UnusableError, ask_strictly
from ragbench.lms.lm import RagbenchLM
from ragbench.record import Fact, Record, ShownPassage
from ragbench.retrievers.embedders import Embedder
from ragbench.text_normalization import estimate_tokens

#: Token limit of the texts for the attributor. Later ones are omitted and counted as cut.
MAX_TOKENS = 6000
#: Token limit of the passages for the judge of claims and statements.
CONTEXT_TOKENS = 8000
#: Maximum number of triples in a reply: twice the length of the longest gold chains.
MOST_TRIPLES = 10
MOST_CLAIMS = 8

#: True if the passages support a claim; None means unscored.
Label = bool | None


class Attribution(Annotation):
    """Supporting sentences of each answer whose program does not cite."""

    name = "attribution"
    signature = signatures.AttributeAnswer
    #: Field of a record that this annotation fills.
    field = "attribution"

    def units(self, record: Record) -> Sequence[Unit]:
        """Return one unit if the program cites nothing and sentences are known."""
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
            raise UnusableError("the reply names a number that no sentence has")
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
    """Return the sentences of a record that can be cited, and True if some were cut.

    Each sentence comes with its fact. For a paragraph, the fact is its title and the number of the
    sentence. For a chunk, it is the known place in the paragraphs (`holds`). Passages without known
    sentences yield none.
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
    """Annotation with the triples (`attributed_triples`) of answers that lack them."""

    name = "evidence"
    signature = signatures.AttributeTriples
    field = "attributed_triples"

    def units(self, record: Record) -> Sequence[Unit]:
        """Return one unit if there are gold triples and passages, but no named triples."""
        named = metrics.evidence_kind(record) == "cited"
        if named or not (metrics.gold_triples(record) and record.passages):
            return ()
        context, cut = context_lines(record.passages, max_tokens=MAX_TOKENS)
        inputs = {"context": context, "question": record.question, "answer": record.answer_text}
        return (Unit(record.qid, tuple(inputs.values()), inputs, cut=cut),)

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[list[str]]:
        if len(reply.triples) > MOST_TRIPLES:
            raise UnusableError(f"the reply has more than {MOST_TRIPLES} triples")
        return [[triple.subject, triple.relation, triple.object] for triple in reply.triples]


class Grounding(Annotation):
    """Judged chain fidelity and hallucination rate."""

    name = "grounding"
    signature = signatures.LabelClaims

    def units(self, record: Record) -> Sequence[Unit]:
        """Return units of at most `MOST_CLAIMS` claims: thoughts first, then the answer."""
        if not record.passages:
            return []
        context, cut = context_lines(record.passages, max_tokens=CONTEXT_TOKENS)
        units = []
        for claims in _claims(record):
            for batch in _parts(claims):
                inputs = {"context": context, "claims": numbered(batch)}
                units.append(Unit(record.qid, (context, batch), inputs, cut=cut))
        return units

    def read(self, unit: Unit, reply: dspy.Prediction) -> list[bool]:
        if len(reply.verdicts) != len(unit.inputs["claims"]):
            raise UnusableError("the number of verdicts differs from the number of claims")
        return [label == "supported" for label in reply.verdicts]

    def scores(self, record: Record, values: Sequence[Any]) -> Scores:
        """Return both metrics; None if a claim has no label or there is no claim."""
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
    """Return the claims of the thoughts and the claims of the answer as sentences."""
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
    """Return the label of each claim of the thoughts and of the answer."""
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
    """Scores of answered questions of one of the four question types of GraphRAG-Bench."""

    name = "statements"
    signature = signatures.MatchStatements

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def units(self, record: Record) -> Sequence[Unit]:
        """Return one unit if the question has one of the four types."""
        if record.qtype not in metrics.SCORES_OF_TYPE:
            return ()
        pids: list[str] = []
        context = None
        cut = False
        calls = 3
        if "faithfulness" in metrics.SCORES_OF_TYPE[record.qtype]:
            pids = [passage.pid for passage in record.passages]
            context, cut = context_lines(record.passages, max_tokens=CONTEXT_TOKENS)
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
        """Add the embedder and the number of answers of other types to the counts."""
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
            raise UnusableError("the reply splits a text into no statements")
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
        raise UnusableError("the reply names a number that no statement has")
    return len(distinct)
