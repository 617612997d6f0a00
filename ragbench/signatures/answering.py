"""Signatures that end in an answer to the question."""

import dspy

from ragbench.signatures.types import (
    BRIEF,
    CERTAINTY,
    GUESS,
    IDENTIFIED,
    REMEMBERED,
    SPAN,
    STATED,
    OfPassages,
    OfQuestion,
    StatedFact,
)


class AnswerFromContext(OfPassages):
    """Answer the question from the passages."""

    answer: str = dspy.OutputField(desc=BRIEF)


# An empty intermediate answer shows that a fact is missing.
class AnswerIfStated(AnswerFromContext):
    """Answer the question from the passages only. Leave the answer empty if they do not state it.

    A statement about another thing of the same kind is not an answer.
    """

    answer: str = dspy.OutputField(desc=f"{SPAN} Leave it empty if the passages do not state it.")


# Self-Ask (Press et al. 2022, arXiv:2210.03350): the model answers what a search does not.
class AnswerFollowUp(AnswerFromContext):
    """Answer the question from the passages. Answer from memory if they do not state it."""

    answer: str = dspy.OutputField(desc=f"{IDENTIFIED} Leave it empty if you do not know it.")


class CombineAnswers(dspy.Signature):
    """Answer the question from the answers to its parts."""

    notes: list[str] = dspy.InputField(desc="Parts of the question with their answers.")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=f"{SPAN} Leave it empty if the notes do not settle it.")


# A separate signature, so that the prompt of the plain reader is the same for every program.
class AnswerWithHints(dspy.Signature):
    """Answer the question from the passages and the notes."""

    context: list[str] = dspy.InputField(desc="Passages.")
    notes: list[str] = dspy.InputField(desc="Intermediate findings.")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


# LightRAG (Guo et al. 2024, arXiv:2410.05779) puts its graph into the prompt.
class AnswerFromGraph(dspy.Signature):
    """Answer the question from the passages and the graph of entities and relations."""

    context: list[str] = dspy.InputField(desc="Passages.")
    graph: list[str] = dspy.InputField(desc="Entities, then relations, each with a description.")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


class AnswerWithConfidence(AnswerFromContext):
    """Answer the question from the passages."""

    confidence: float = dspy.OutputField(desc=CERTAINTY)


class DirectAnswer(OfQuestion):
    """Answer the question from memory."""

    answer: str = dspy.OutputField(desc=f"{REMEMBERED} {GUESS}")


# The notes are the answers of related sub-questions.
class AnswerPart(dspy.Signature):
    """Answer the question, a part of the main question, from the passages and the notes.

    If they also settle the main question, answer it too.
    """

    context: list[str] = dspy.InputField(desc="Passages.")
    notes: list[str] = dspy.InputField(desc="Earlier sub-questions with their answers.")
    main_question: str = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=STATED)
    confidence: float = dspy.OutputField(desc=CERTAINTY)
    main_answer: str = dspy.OutputField(
        desc=f"Answer to the main question. {SPAN} Leave it empty while facts are missing."
    )


# A step of MA-RAG (Nguyen et al. 2025, arXiv:2505.20096), which may be answered from memory.
class AnswerTask(dspy.Signature):
    """Answer the question from the notes. Answer from memory if they do not help."""

    notes: list[str] = dspy.InputField(desc="Statements from the retrieved passages.")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=f"{IDENTIFIED} Leave it empty if you do not know it.")
    success: bool = dspy.OutputField(desc="True if the question is answered.")
    rating: int = dspy.OutputField(desc="Certainty of the answer, from 0 (a guess) to 10.")


class AnswerFromPlan(dspy.Signature):
    """Answer the question from the passages."""

    plan: list[str] = dspy.InputField(
        desc="Look-ups with their findings and the labels of their passages."
    )
    context: list[str] = dspy.InputField(desc="Passages, each after its label, such as [n1.1].")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    citations: list[str] = dspy.OutputField(
        desc="Labels of the passages that prove the answer, such as n1.1."
    )


class CitedAnswer(OfPassages):
    """Write the statements of the passages that answer the question. Then answer it."""

    claims: list[StatedFact] = dspy.OutputField(desc="Leave it empty if no passage helps.")
    answer: str = dspy.OutputField(desc=BRIEF)


class CitedPart(CitedAnswer):
    """Write the statements of the passages that answer the question. Then answer it."""

    answer: str = dspy.OutputField(desc=STATED)


# FaithfulRAG (Zhang et al. 2025, arXiv:2506.08938): the notes are the pieces of the passages that
# are nearest to the remembered facts.
class AnswerFaithfully(AnswerWithHints):
    """Answer the question from the passages and the notes.

    If memory contradicts the passages, follow the passages.
    """

    notes: list[str] = dspy.InputField(desc="The most relevant pieces of the passages.")


class AnswerInStages(dspy.Signature):
    """Answer from the notes, check that answer against the passages, then answer the question.

    If memory contradicts the passages, follow the passages.
    """

    context: list[str] = dspy.InputField(desc="Passages.")
    notes: list[str] = dspy.InputField(desc="The most relevant pieces of the passages.")
    question: str = dspy.InputField()
    analysis: str = dspy.OutputField(desc="Statements of the notes about the question.")
    first_answer: str = dspy.OutputField(
        desc="Answer from the notes only. Leave it empty if they lack it."
    )
    check: str = dspy.OutputField(desc="Agreement or contradiction of the passages.")
    answer: str = dspy.OutputField(desc=BRIEF)


class SynthesizeAnswer(dspy.Signature):
    """Answer the question from the notes."""

    notes: list[str] = dspy.InputField(desc="Findings.")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


class CombineNotes(dspy.Signature):
    """Answer the question from the notes."""

    notes: list[str] = dspy.InputField(desc="Findings.")
    question: str = dspy.InputField()
    instruction: str = dspy.InputField(desc="Rule that combines the notes. It may be empty.")
    answer: str = dspy.OutputField(desc=BRIEF)


class RefineAnswer(dspy.Signature):
    """Correct or complete the draft answer from the passages and the notes."""

    context: list[str] = dspy.InputField(desc="Passages. It may be empty.")
    notes: list[str] = dspy.InputField(desc="Findings.")
    question: str = dspy.InputField()
    draft: str = dspy.InputField(desc="Current answer. It may be empty.")
    answer: str = dspy.OutputField(desc=BRIEF)


# The output of a loop of code that ended without a submitted answer.
class AnswerFromCode(dspy.Signature):
    """Answer the question from the output of the code."""

    environment: list[str] = dspy.InputField(desc="Variables of the code.")
    trajectory: str = dspy.InputField(desc="Turns of code with their output.")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
