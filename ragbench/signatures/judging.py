"""Signatures that decide or grade: gates, relevance, support, usefulness, completeness.

The labels of IsRel, IsSup, IsUse and the gate follow Self-RAG's reflection tokens (Asai et al.
2023, arXiv:2310.11511), as words instead of trained tokens.
"""

from typing import Literal

import dspy

from ragbench.signatures.types import Triple
from ragbench.signatures.wording import SPAN

Relevance = Literal["relevant", "irrelevant"]
Support = Literal["full", "partial", "none"]
Utility = Literal[1, 2, 3, 4, 5]


RELEVANT = "relevant: it helps to answer the question, even in part"
SUPPORTED = "full: the passage states the answer; partial: part of it; none: nothing of it"
USEFUL = "from 1, no answer to the question, to 5, all that it asks for"
SURE = "0 to 1: how sure this is"


class RetrievalDecision(dspy.Signature):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    question: str = dspy.InputField()
    retrieve: bool = dspy.OutputField(desc="whether facts must be looked up")
    confidence: float = dspy.OutputField(desc=SURE)


QuestionType = Literal["single", "bridge", "comparison"]


# The planner's gate; it infers the type, since the data set's own label would leak.
class RetrievalPlan(dspy.Signature):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    question: str = dspy.InputField()
    retrieve: bool = dspy.OutputField(desc="whether facts must be looked up")
    question_type: QuestionType = dspy.OutputField(
        desc="single: one fact answers it; bridge: it goes through an entity that it does not "
        "name; comparison: of two or more things"
    )


# Adaptive-RAG's classifier (Jeong et al. 2024, arXiv:2403.14403).
class QuestionComplexity(dspy.Signature):
    """Choose how much must be looked up to answer the question. If in doubt, more."""

    question: str = dspy.InputField()
    effort: Literal["single", "multi", "none"] = dspy.OutputField(
        desc="single: one fact about a thing that the question names; multi: several facts, or one "
        "about a thing that must be found first; none: common knowledge"
    )


# Self-RAG's long form asks again at each segment, with what has been written so far.
class ContinueRetrieval(dspy.Signature):
    """Decide whether continuing the draft needs more facts to be looked up."""

    question: str = dspy.InputField()
    draft: str = dspy.InputField(desc="sentences written so far")
    retrieve: bool = dspy.OutputField(desc="whether more facts must be looked up")
    confidence: float = dspy.OutputField(desc=SURE)


class IsRel(dspy.Signature):
    """Decide whether the passage is relevant to the question."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    relevance: Relevance = dspy.OutputField(desc=RELEVANT)
    confidence: float = dspy.OutputField(desc=SURE)


class IsSup(dspy.Signature):
    """Grade how far the passage proves the answer."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    support: Support = dspy.OutputField(desc=SUPPORTED)
    confidence: float = dspy.OutputField(desc=SURE)


class IsUse(dspy.Signature):
    """Grade how useful the answer is to the question, whether or not it is right."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    utility: Utility = dspy.OutputField(desc=USEFUL)


# All grades of a passage in one call, in the order in which Self-RAG writes its tokens.
class CritiquedAnswer(dspy.Signature):
    """Grade the passage, answer the question from it alone, then grade the answer."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    relevance: Relevance = dspy.OutputField(desc=RELEVANT)
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if not stated")
    support: Support = dspy.OutputField(desc=SUPPORTED)
    utility: Utility = dspy.OutputField(desc=USEFUL)


class CritiquedSegment(dspy.Signature):
    """Grade the passage, write the next sentence of the draft from it, then grade the sentence."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    draft: str = dspy.InputField(desc="sentences written so far; may be empty")
    relevance: Relevance = dspy.OutputField(desc=RELEVANT)
    segment: str = dspy.OutputField(desc="one sentence; empty if the passage adds nothing")
    support: Support = dspy.OutputField(desc=SUPPORTED)
    utility: Utility = dspy.OutputField(desc=USEFUL)
    done: bool = dspy.OutputField(desc="the draft with this sentence answers the question")


class RateAnswer(dspy.Signature):
    """Judge how well the passages and the notes prove the answer."""

    context: list[str] = dspy.InputField()
    notes: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    confidence: float = dspy.OutputField(desc="0, not at all, to 1, beyond doubt")


# RAGentA's second agent (Besrour et al. 2025, arXiv:2506.16988): a yes or no on one answer.
class HoldsAnswer(dspy.Signature):
    """Decide whether the passage holds the answer to the question and supports it."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    holds: bool = dspy.OutputField(desc="whether the passage supports this answer")
    confidence: float = dspy.OutputField(desc=SURE)


class AuditClaims(dspy.Signature):
    """Check the claims of an answer: which do not bear on the question, and what is unanswered."""

    question: str = dspy.InputField()
    claims: list[str] = dspy.InputField(desc="[number of the claim] claim [numbers of passages]")
    answer: str = dspy.InputField()
    drop: list[int] = dspy.OutputField(desc="numbers of the claims to leave out; empty if none")
    unanswered: list[str] = dspy.OutputField(
        desc="parts of the question without an answer; empty if none"
    )
    follow_ups: list[str] = dspy.OutputField(
        desc="for each unanswered part, one question that makes sense by itself; empty if none"
    )


class SelectItems(dspy.Signature):
    """Keep the numbered candidates that help to answer the question."""

    question: str = dspy.InputField()
    candidates: list[str] = dspy.InputField()
    keep: list[int] = dspy.OutputField(desc="numbers of the candidates")


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


# The names are those of kinds of errors; `score.annotate.causes` says what each is filed under.
class ExplainMistake(dspy.Signature):
    """Say how the answer to the question differs from the gold answers.

    Choose passages_lack_it if the passages do not hold what the gold answer needs.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    mistake: Mistake = dspy.OutputField()


FailureMode = Literal[
    "judged_wrongly", "passages_missing", "entity_confused", "search_misdirected",
    "question_misread", "inference_wrong",
]  # fmt: skip


# After the failure modes of A-RAG's appendix D; `score.annotate.failure_modes` files them.
class ClassifyFailure(dspy.Signature):
    """Say why the answer to the question is wrong, from the steps that led to it.

    Choose the first mistake: judged_wrongly if the answer means the same as a gold answer,
    passages_missing if good searches did not find what was needed, search_misdirected if the
    searches were for the wrong thing or ended too early.
    """

    context: list[str] = dspy.InputField(desc="passages retrieved")
    steps: list[str] = dspy.InputField(desc="what was thought and searched, in order")
    question: str = dspy.InputField()
    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    failure: FailureMode = dspy.OutputField(
        desc="entity_confused: one thing was taken for another; question_misread: another question "
        "was answered; inference_wrong: the facts were found and a wrong conclusion drawn"
    )
