"""Signatures that decide or grade: gates, relevance, support, usefulness, completeness.

The labels of IsRel, IsSup, IsUse and the gate follow Self-RAG's reflection tokens (Asai et al.
2023, arXiv:2310.11511), as words instead of trained tokens.
"""

from typing import Literal

import dspy

from ragbench.signatures.types import NAMED, SPAN, OfQuestion, Triple

Relevance = Literal["relevant", "irrelevant"]
Support = Literal["full", "partial", "none"]
Utility = Literal[1, 2, 3, 4, 5]


# Three questions, each with its own words. Relevance: is the passage about it at all? Support: does
# it prove an answer? Enough evidence, asked where a search may end: is every fact known?
RELEVANT = "relevant: it states something about a person, place or thing that the answer depends on"
SUPPORTED = "full: the passage proves all of it; partial: some of it; none: none of it"
USEFUL = "from 1, no answer to the question, to 5, all that it asks for"
SURE = "0 to 1: how sure this is"


class RetrievalDecision(OfQuestion):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    retrieve: bool = dspy.OutputField(desc="whether facts must be looked up")
    confidence: float = dspy.OutputField(desc=SURE)


QuestionType = Literal["single", "bridge", "comparison"]


# The planner's gate; it infers the type, since the data set's own label would leak.
class RetrievalPlan(OfQuestion):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    retrieve: bool = dspy.OutputField(desc="whether facts must be looked up")
    question_type: QuestionType = dspy.OutputField(
        desc="single: one fact answers it; bridge: it goes through an entity that it does not "
        "name; comparison: of two or more things"
    )


# Adaptive-RAG's classifier (Jeong et al. 2024, arXiv:2403.14403).
class QuestionComplexity(OfQuestion):
    """Choose how much must be looked up to answer the question. If in doubt, more."""

    effort: Literal["single", "multi", "none"] = dspy.OutputField(
        desc="single: one fact about a thing that the question names; multi: several facts, or one "
        "about a thing that must be found first; none: common knowledge"
    )


class IsRel(OfQuestion):
    """Decide whether the passage is relevant to the question."""

    passage: str = dspy.InputField()
    relevance: Relevance = dspy.OutputField(desc=RELEVANT)
    confidence: float = dspy.OutputField(desc=SURE)


class IsSup(OfQuestion):
    """Grade how far the passage proves the answer."""

    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    support: Support = dspy.OutputField(desc=SUPPORTED)
    confidence: float = dspy.OutputField(desc=SURE)


class IsUse(OfQuestion):
    """Grade how useful the answer is to the question, whether or not it is right."""

    answer: str = dspy.InputField()
    utility: Utility = dspy.OutputField(desc=USEFUL)


# Relevance and support in one call, in the order in which Self-RAG writes its tokens.
class CritiquedAnswer(OfQuestion):
    """Grade the passage, answer the question from it alone, then grade the answer."""

    passage: str = dspy.InputField()
    relevance: Relevance = dspy.OutputField(desc=RELEVANT)
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if not stated")
    support: Support = dspy.OutputField(desc=SUPPORTED)


# RAGentA's second agent (Besrour et al. 2025, arXiv:2506.16988): a yes or no on one answer.
class HoldsAnswer(OfQuestion):
    """Decide whether the passage holds the answer to the question and supports it."""

    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    holds: bool = dspy.OutputField(desc="whether the passage supports this answer")
    confidence: float = dspy.OutputField(desc=SURE)


class AuditClaims(dspy.Signature):
    """Check the claims of an answer: which do not bear on the question, and what is unanswered."""

    context: list[str] = dspy.InputField(desc="passages that the claims were read off")
    question: str = dspy.InputField()
    claims: list[str] = dspy.InputField(desc="[number of the claim] claim [numbers of passages]")
    notes: list[str] = dspy.InputField(desc="Earlier follow-up questions with their answers.")
    answer: str = dspy.InputField()
    drop: list[int] = dspy.OutputField(desc="numbers of the claims to leave out; empty if none")
    follow_up: str = dspy.OutputField(
        desc="One self-contained question for the next missing fact. Leave it empty if no fact is "
        f"missing or nothing more can be found. {NAMED}"
    )


# CRAG's strips.
class SelectStrips(OfQuestion):
    """Keep the numbered candidates that state a fact which the answer to the question needs."""

    candidates: list[str] = dspy.InputField(desc="pieces of one passage")
    keep: list[int] = dspy.OutputField(desc="numbers of the candidates; empty if none")


# HippoRAG 2's recognition memory (Gutiérrez et al. 2025, arXiv:2502.14802).
class SelectFacts(OfQuestion):
    """Keep the numbered facts that help to answer the question. It may be that none does."""

    facts: list[str] = dspy.InputField(desc="each a subject, a relation and an object")
    keep: list[int] = dspy.OutputField(desc="numbers of the facts; empty if none")


# Listwise, as RankGPT (Sun et al. 2023, arXiv:2304.09542), over typed numbers.
class RankPassages(dspy.Signature):
    """Order the numbered passages from most to least helpful for the query."""

    query: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    ranking: list[int] = dspy.OutputField(desc="passage numbers, best first")


Verdict = Literal["correct", "incorrect"]


class JudgeAnswer(OfQuestion):
    """Decide whether the answer means the same as one of the gold answers to the question.

    An answer in more or other words is correct; one that is vague, hedges between several or
    contradicts the gold answer is incorrect.
    """

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
class SplitStatements(OfQuestion):
    """Break the text, an answer to the question, into statements that can be read alone.

    Keep every fact, add none, and use no pronouns.
    """

    text: str = dspy.InputField()
    statements: list[str] = dspy.OutputField()


class MatchStatements(OfQuestion):
    """Compare the numbered statements of an answer and of the gold answer to the question.

    Name the answer's statements that the gold statements support, and the gold statements that the
    answer's statements contain.
    """

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


# The six of A-RAG's analysis of failures (Du et al. 2026).
FailureMode = Literal[
    "entity_confusion", "wrong_strategy", "misunderstanding", "budget", "not_in_corpus", "gave_up"
]


class NameFailure(OfQuestion):
    """Say what first went wrong on the way to a wrong answer."""

    gold_answers: list[str] = dspy.InputField()
    gold_passages: list[str] = dspy.InputField(desc="what proves them, and whether it was found")
    steps: list[str] = dspy.InputField(desc="what was searched, read and thought, in order")
    answer: str = dspy.InputField()
    ended_by: str = dspy.InputField()
    mode: FailureMode = dspy.OutputField(
        desc="entity_confusion: one person, place or thing was taken for another; wrong_strategy: "
        "the wrong facts were looked for, or too few; misunderstanding: another question was "
        "answered; budget: the way was right, and no step was left; not_in_corpus: the passages "
        "that were searched do not hold what is needed; gave_up: no answer was given though a "
        "step was left"
    )


# The names are those of kinds of errors; `score.judging` says what each is filed under.
class ExplainMistake(dspy.Signature):
    """Say how the answer to the question differs from the gold answers.

    Choose passages_lack_it if the passages do not hold what the gold answer needs.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    mistake: Mistake = dspy.OutputField()
