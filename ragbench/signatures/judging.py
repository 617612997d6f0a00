"""Signatures that decide or grade: gates, relevance, support, usefulness, completeness.

The labels of IsRel, IsSup, IsUse and the gate follow Self-RAG's reflection tokens (Asai et al.
2023, arXiv:2310.11511), as words instead of trained tokens.
"""

from typing import Literal

import dspy

from ragbench.signatures.types import Triple

Relevance = Literal["relevant", "irrelevant"]
Support = Literal["full", "partial", "none"]
Utility = Literal[1, 2, 3, 4, 5]


class RetrievalDecision(dspy.Signature):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    question: str = dspy.InputField()
    retrieve: bool = dspy.OutputField()
    confidence: float = dspy.OutputField(desc="0 to 1")


QuestionType = Literal["single", "bridge", "comparison"]


# The planner's gate; it infers the type, since the data set's own label would leak.
class RetrievalPlan(dspy.Signature):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must.

    Name the type of the question: bridge if it goes through an entity that it does not name.
    """

    question: str = dspy.InputField()
    retrieve: bool = dspy.OutputField()
    question_type: QuestionType = dspy.OutputField()


# Self-RAG's long form asks again at each segment, with what has been written so far.
class ContinueRetrieval(dspy.Signature):
    """Decide whether continuing the draft needs more facts to be looked up."""

    question: str = dspy.InputField()
    draft: str = dspy.InputField()
    retrieve: bool = dspy.OutputField()
    confidence: float = dspy.OutputField(desc="0 to 1")


class IsRel(dspy.Signature):
    """Decide whether the passage helps to answer the question."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    relevance: Relevance = dspy.OutputField()
    confidence: float = dspy.OutputField(desc="0 to 1")


class IsSup(dspy.Signature):
    """Grade how far the passage backs the answer."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    support: Support = dspy.OutputField()
    confidence: float = dspy.OutputField(desc="0 to 1")


class IsUse(dspy.Signature):
    """Grade how useful the answer is to the question, from 1 (useless) to 5 (complete)."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    utility: Utility = dspy.OutputField()


class CritiquedAnswer(dspy.Signature):
    """Answer the question from the passage in as few words as possible, then grade the passage."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    answer: str = dspy.OutputField()
    relevance: Relevance = dspy.OutputField()
    support: Support = dspy.OutputField()


class CritiquedSegment(dspy.Signature):
    """Write the next sentence of the draft from the passage, then grade the passage."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    draft: str = dspy.InputField()
    segment: str = dspy.OutputField()
    relevance: Relevance = dspy.OutputField()
    support: Support = dspy.OutputField()
    done: bool = dspy.OutputField(desc="the draft with this sentence answers the question")


class RateAnswer(dspy.Signature):
    """Rate how well the passages and the notes settle the answer."""

    context: list[str] = dspy.InputField()
    notes: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    confidence: float = dspy.OutputField(desc="0 to 1")


class SelectItems(dspy.Signature):
    """Keep the numbered candidates that help to answer the question."""

    question: str = dspy.InputField()
    candidates: list[str] = dspy.InputField()
    keep: list[int] = dspy.OutputField()


class EvaluateCompleteness(dspy.Signature):
    """Judge whether the facts suffice to answer the question."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField()
    score: float = dspy.OutputField(desc="0 to 1")
    missing: list[str] = dspy.OutputField()


Verdict = Literal["correct", "incorrect"]


class JudgeAnswer(dspy.Signature):
    """Decide whether the answer means the same as one of the gold answers to the question.

    An answer in more or other words is correct; one that is vague, hedges between several or
    contradicts the gold answer is incorrect.
    """

    question: str = dspy.InputField()
    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    verdict: Verdict = dspy.OutputField()


class AttributeAnswer(dspy.Signature):
    """Name the numbered sentences that are needed to derive the answer to the question."""

    sentences: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    used: list[int] = dspy.OutputField(desc="numbers; empty if none")


# Evidence as 2WikiMultiHopQA has it: relations there are properties of Wikidata.
class AttributeTriples(dspy.Signature):
    """Write the facts of the passages that the answer to the question is derived from.

    One triple for each step of the derivation, with names and dates as in the passages.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    triples: list[Triple] = dspy.OutputField(
        desc="relation is a Wikidata property, such as director or date of birth; empty if none"
    )


# The three below score long answers, statement by statement, as GraphRAG-Bench does.
class SplitStatements(dspy.Signature):
    """Break the text, an answer to the question, into statements that can be read alone.

    Keep every fact, add none, and use no pronouns.
    """

    question: str = dspy.InputField()
    text: str = dspy.InputField()
    statements: list[str] = dspy.OutputField()


class MatchStatements(dspy.Signature):
    """Compare the numbered statements of an answer and of the gold answer to the question.

    Name the answer's statements that the gold statements support, and the gold statements that the
    answer's statements contain.
    """

    question: str = dspy.InputField()
    answer_statements: list[str] = dspy.InputField()
    gold_statements: list[str] = dspy.InputField()
    supported: list[int] = dspy.OutputField(desc="numbers of answer statements")
    covered: list[int] = dspy.OutputField(desc="numbers of gold statements")


class SupportedStatements(dspy.Signature):
    """Name the numbered statements that can be inferred from the passages alone."""

    context: list[str] = dspy.InputField()
    statements: list[str] = dspy.InputField()
    supported: list[int] = dspy.OutputField(desc="numbers; empty if none")


Grounding = Literal["supported", "unsupported"]


class LabelClaims(dspy.Signature):
    """Decide for each numbered claim whether it can be inferred from the passages alone.

    A claim that is true but not in the passages, or only partly in them, is unsupported.
    """

    context: list[str] = dspy.InputField()
    claims: list[str] = dspy.InputField()
    verdicts: list[Grounding] = dspy.OutputField(desc="one for each claim, in their order")


Mistake = Literal[
    "same_meaning", "part_of_it", "wrong_entity", "wrong_kind", "no_answer", "passages_lack_it"
]


# The names are those of kinds of errors; `experiments.explain` says what each is filed under.
class ExplainMistake(dspy.Signature):
    """Say how the answer to the question differs from the gold answers.

    Choose passages_lack_it if the passages do not hold what the gold answer needs.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    mistake: Mistake = dspy.OutputField()
