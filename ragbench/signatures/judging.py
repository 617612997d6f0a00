"""Signatures that decide or grade: gates, relevance, support, usefulness, completeness.

The labels of IsRel, IsSup, IsUse and the gate follow Self-RAG's reflection tokens (Asai et al.
2023, arXiv:2310.11511), as words instead of trained tokens. A program that asks for a confidence
appends the field `confidence` (see `programs.core.confidence.grader`).
"""

from typing import Literal

import dspy

from ragbench.signatures.types import NAMED, SPAN, OfQuestion, Triple

Relevance = Literal["relevant", "irrelevant"]
Support = Literal["full", "partial", "none"]
Utility = Literal[1, 2, 3, 4, 5]
Grade = Literal["answer", "part", "nothing"]

RELEVANT = (
    "relevant: the passage states a fact about a person, place or thing on which the answer "
    "depends. irrelevant: it does not."
)
SUPPORTED = (
    "full: the passage proves the whole {0}. partial: it proves a part. none: it proves nothing, "
    "or the {0} is empty."
)
USEFUL = "From 1 (does not answer the question) to 5 (answers all of it)."
SURE = "Certainty, from 0 to 1."


class RetrievalDecision(OfQuestion):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    retrieve: bool = dspy.OutputField(desc="True if facts must be looked up.")


QuestionType = Literal["single", "bridge", "comparison"]


# The planner's gate. It infers the type, because the data set's own label would leak.
class RetrievalPlan(OfQuestion):
    """Decide whether facts must be looked up to answer the question. If in doubt, they must."""

    retrieve: bool = dspy.OutputField(desc="True if facts must be looked up.")
    question_type: QuestionType = dspy.OutputField(
        desc="single: one fact answers it. bridge: it depends on an entity that it does not name. "
        "comparison: it compares two or more things."
    )


# Adaptive-RAG's classifier (Jeong et al. 2024, arXiv:2403.14403).
class QuestionComplexity(OfQuestion):
    """Choose the effort of the search that answers the question. If in doubt, choose more."""

    effort: Literal["single", "multi", "none"] = dspy.OutputField(
        desc="single: one fact about a thing that the question names. multi: several facts, or one "
        "about a thing that must be found first. none: common knowledge."
    )


class IsRel(OfQuestion):
    """Decide whether the passage is relevant to the question."""

    passage: str = dspy.InputField()
    relevance: Relevance = dspy.OutputField(desc=RELEVANT)


class IsSup(OfQuestion):
    """Grade the support of the passage for the answer."""

    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    support: Support = dspy.OutputField(desc=SUPPORTED.format("answer"))


class IsUse(OfQuestion):
    """Grade the usefulness of the answer to the question, even if it is wrong."""

    answer: str = dspy.InputField()
    utility: Utility = dspy.OutputField(desc=USEFUL)


# Relevance and support in one call, in the order in which Self-RAG writes its tokens.
class CritiquedAnswer(IsSup, IsRel):
    """Grade the passage, answer the question from it only, then grade the answer."""

    answer: str = dspy.OutputField(desc=f"{SPAN} Leave it empty if not stated.")


# A segment of Self-RAG's beam search (Algorithm 1), with its labels, and the answer if it follows.
class CritiquedSentence(IsRel):
    """Grade the passage, then write the next sentence of an answer from it, and grade that.

    The sentence adds one fact that leads to the answer, such as the next name in a chain of facts.
    """

    thoughts: list[str] = dspy.InputField(desc="Sentences written before. It may be empty.")
    sentence: str = dspy.OutputField(
        desc=f"One new sentence. {NAMED} Leave it empty if the passage adds nothing."
    )
    support: Support = dspy.OutputField(desc=SUPPORTED.format("sentence"))
    utility: Utility = dspy.OutputField(
        desc="Progress of the sentence toward the answer, from 1 (none) to 5 (it gives the answer)."
    )
    answer: str = dspy.OutputField(desc=f"{SPAN} Leave it empty until all sentences prove it.")


# Before each segment.
class SegmentDecision(RetrievalDecision):
    """Decide whether the next sentence of the answer needs a look-up. If in doubt, it does."""

    thoughts: list[str] = dspy.InputField(desc="Sentences written before. It may be empty.")


# CRAG's evaluator (Yan et al. 2024, arXiv:2401.15884) grades whether a document answers.
class GradePassage(OfQuestion):
    """Grade the passage by the information that it states about the question."""

    passage: str = dspy.InputField()
    grade: Grade = dspy.OutputField(
        desc="answer: the passage alone states the answer to the question. part: it states another "
        "fact that the answer needs. nothing: it states neither."
    )


# RAGentA's second agent (Besrour et al. 2025, arXiv:2506.16988): a yes or no on one answer.
class HoldsAnswer(OfQuestion):
    """Decide whether the passage contains and supports the answer to the question."""

    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    holds: bool = dspy.OutputField(desc="True if the passage supports this answer.")


class AuditClaims(dspy.Signature):
    """Check the claims of an answer. Find irrelevant claims and the next missing fact."""

    context: list[str] = dspy.InputField(desc="Passages of the claims.")
    question: str = dspy.InputField()
    claims: list[str] = dspy.InputField(desc="[number of the claim] claim [numbers of passages].")
    notes: list[str] = dspy.InputField(desc="Earlier follow-up questions with their answers.")
    answer: str = dspy.InputField()
    drop: list[int] = dspy.OutputField(
        desc="Numbers of the claims to leave out. Leave it empty if none."
    )
    follow_up: str = dspy.OutputField(
        desc="One self-contained question for the next missing fact. Leave it empty if no fact is "
        f"missing or nothing more can be found. {NAMED}"
    )


# CRAG's strips.
class SelectStrips(OfQuestion):
    """Keep the numbered candidates that state a fact which the answer to the question needs."""

    candidates: list[str] = dspy.InputField(desc="Pieces of one passage.")
    keep: list[int] = dspy.OutputField(desc="Numbers of the candidates. Leave it empty if none.")


# HippoRAG 2's recognition memory (Gutiérrez et al. 2025, arXiv:2502.14802).
class SelectFacts(OfQuestion):
    """Keep the numbered facts that help to answer the question. Possibly none does."""

    facts: list[str] = dspy.InputField(desc="Each a subject, a relation and an object.")
    keep: list[int] = dspy.OutputField(desc="Numbers of the facts. Leave it empty if none.")


# Listwise, as RankGPT (Sun et al. 2023, arXiv:2304.09542), over typed numbers.
class RankPassages(dspy.Signature):
    """Order the numbered passages from most to least helpful for the query."""

    query: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    ranking: list[int] = dspy.OutputField(desc="Passage numbers, best first.")


Verdict = Literal["correct", "incorrect"]


class JudgeAnswer(OfQuestion):
    """Decide whether the answer means the same as one of the gold answers to the question.

    An answer in more or other words is correct. An answer is incorrect if it is vague, names
    several alternatives, or contradicts the gold answer.
    """

    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    verdict: Verdict = dspy.OutputField()


class AttributeAnswer(dspy.Signature):
    """Name the numbered sentences that are needed to derive the answer to the question."""

    sentences: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    used: list[int] = dspy.OutputField(desc="Numbers of sentences. Leave it empty if none.")


# Evidence like in 2WikiMultiHopQA, whose relations are properties of Wikidata.
class AttributeTriples(dspy.Signature):
    """Write the facts of the passages from which the answer to the question is derived.

    Write one triple for each step of the derivation, with the names and dates of the passages.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    triples: list[Triple] = dspy.OutputField(
        desc="The relation is a Wikidata property, such as director or date of birth. Leave it "
        "empty if none."
    )


# The three below score long answers, statement by statement, as GraphRAG-Bench does.
class SplitStatements(OfQuestion):
    """Split the text, an answer to the question, into self-contained statements.

    Keep every fact, add none, and use no pronouns.
    """

    text: str = dspy.InputField()
    statements: list[str] = dspy.OutputField()


class MatchStatements(OfQuestion):
    """Compare the numbered statements of an answer and of the gold answer to the question.

    Name the answer's statements that the gold statements support. Name the gold statements that the
    answer's statements contain.
    """

    answer_statements: list[str] = dspy.InputField()
    gold_statements: list[str] = dspy.InputField()
    supported: list[int] = dspy.OutputField(desc="Numbers of answer statements.")
    covered: list[int] = dspy.OutputField(desc="Numbers of gold statements.")


class SupportedStatements(dspy.Signature):
    """Name the numbered statements that the passages alone support."""

    context: list[str] = dspy.InputField()
    statements: list[str] = dspy.InputField()
    supported: list[int] = dspy.OutputField(desc="Numbers of statements. Leave it empty if none.")


Grounding = Literal["supported", "unsupported"]


class LabelClaims(dspy.Signature):
    """Decide for each numbered claim whether the passages alone support it.

    A claim that is true but not in the passages, or only partly in them, is unsupported.
    """

    context: list[str] = dspy.InputField()
    claims: list[str] = dspy.InputField()
    verdicts: list[Grounding] = dspy.OutputField(desc="One for each claim, in their order.")


Mistake = Literal[
    "same_meaning", "part_of_it", "wrong_entity", "wrong_kind", "no_answer", "passages_lack_it"
]


# The six of A-RAG's analysis of failures (Du et al. 2026).
FailureMode = Literal[
    "entity_confusion", "wrong_strategy", "misunderstanding", "budget", "not_in_corpus", "no_answer"
]


class NameFailure(OfQuestion):
    """Name the first mistake of the steps that led to a wrong answer."""

    gold_answers: list[str] = dspy.InputField()
    gold_passages: list[str] = dspy.InputField(desc="Their evidence, and whether it was found.")
    steps: list[str] = dspy.InputField(desc="Searches, readings and thoughts, in order.")
    answer: str = dspy.InputField()
    ended_by: str = dspy.InputField()
    mode: FailureMode = dspy.OutputField(
        desc="entity_confusion: one person, place or thing was confused with another. "
        "wrong_strategy: the program searched for the wrong facts, or too few. misunderstanding: "
        "it answered another question. budget: the steps were right, but their limit was reached. "
        "not_in_corpus: the searched passages do not contain the needed facts. no_answer: it "
        "stopped without an answer before the limit."
    )


# The names are kinds of errors; `score.judging` files each under a cause.
class ExplainMistake(dspy.Signature):
    """Name the difference between the answer to the question and the gold answers.

    Choose passages_lack_it if the passages do not contain the facts of the gold answer.
    """

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    gold_answers: list[str] = dspy.InputField()
    answer: str = dspy.InputField()
    mistake: Mistake = dspy.OutputField()
