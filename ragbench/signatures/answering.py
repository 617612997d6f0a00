"""Signatures that end in an answer to the question."""

import dspy

from ragbench.signatures.types import (
    BRIEF,
    GUESS,
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


# An answer on the way to the last one: what it lacks shows by its being empty.
class AnswerIfStated(AnswerFromContext):
    """Answer the question from the passages alone. Leave the answer empty if they do not state it.

    What they state about something else of the same kind is no answer.
    """

    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if they do not state it")


# Self-Ask (Press et al. 2022, arXiv:2210.03350): what a search does not answer, the model does.
class AnswerFollowUp(AnswerFromContext):
    """Answer the question from the passages, or from memory where they do not state it."""

    answer: str = dspy.OutputField(
        desc="the complete name, date, number or phrase alone; empty if not known"
    )


class CombineAnswers(dspy.Signature):
    """Answer the question from the answers to its parts."""

    notes: list[str] = dspy.InputField(desc="parts of the question, with their answers")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if they do not settle it")


# The loop's own thoughts and facts help a forced answer; the plain reader has no such field, so
# that its prompt stays the same for every program.
class AnswerWithHints(dspy.Signature):
    """Answer the question from the passages and the notes."""

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="what was found out on the way")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


# LightRAG (Guo et al. 2024, arXiv:2410.05779), which shows its graph beside the passages.
class AnswerFromGraph(dspy.Signature):
    """Answer the question from the passages and what is known of entities and relations."""

    context: list[str] = dspy.InputField(desc="passages")
    graph: list[str] = dspy.InputField(desc="entities, then relations, with what texts say of each")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


class AnswerWithConfidence(AnswerFromContext):
    """Answer the question from the passages."""

    confidence: float = dspy.OutputField(
        desc="0, the passages say nothing of it, to 1, they prove the answer"
    )


class DirectAnswer(OfQuestion):
    """Answer the question from memory."""

    answer: str = dspy.OutputField(desc=f"{REMEMBERED}; {GUESS}")


# The notes are what related sub-questions have already settled.
class AnswerPart(dspy.Signature):
    """Answer the question, which is a part of the main question, from the passages and the notes.

    Where they settle the main question as well, answer that too.
    """

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="sub-questions answered before; may be empty")
    main_question: str = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=STATED)
    confidence: float = dspy.OutputField(
        desc="0, passages and notes say nothing of it, to 1, they prove the answer"
    )
    main_answer: str = dspy.OutputField(
        desc=f"to the main question: {SPAN}; empty while facts are missing"
    )


# A step of MA-RAG (Nguyen et al. 2025, arXiv:2505.20096), which may be answered from memory.
class AnswerTask(dspy.Signature):
    """Answer the question from the notes, or from memory where they do not bear on it."""

    notes: list[str] = dspy.InputField(desc="what the passages found state; may be empty")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(
        desc="the complete name, date, number or phrase alone; empty if not known"
    )
    success: bool = dspy.OutputField(desc="whether the question is answered")
    rating: int = dspy.OutputField(desc="0, a guess, to 10, beyond doubt")


# A line of the plan: what was looked up, what it found out, the labels of its passages.
class AnswerFromPlan(dspy.Signature):
    """Answer the question from the passages."""

    plan: list[str] = dspy.InputField(
        desc="what was looked up, what it found out, and the labels of its passages"
    )
    context: list[str] = dspy.InputField(desc="passages, each after its label, such as [n1.1]")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    citations: list[str] = dspy.OutputField(
        desc="labels of the passages that prove the answer, such as n1.1"
    )


class CitedAnswer(OfPassages):
    """Write what the passages state that answers the question, then answer it."""

    claims: list[StatedFact] = dspy.OutputField(desc="empty if they state nothing on it")
    answer: str = dspy.OutputField(desc=BRIEF)


class CitedPart(CitedAnswer):
    """Write what the passages state that answers the question, then answer it."""

    answer: str = dspy.OutputField(desc=STATED)


# FaithfulRAG (Zhang et al. 2025, arXiv:2506.08938): the notes are pieces of the passages that are
# near to what the model remembers.
class AnswerFaithfully(AnswerWithHints):
    """Answer the question from the passages and the notes.

    Where memory says otherwise, follow the passages.
    """

    notes: list[str] = dspy.InputField(desc="pieces of the passages that matter most")


class AnswerInStages(dspy.Signature):
    """Judge by the notes, check that against the passages, then answer the question.

    Where memory says otherwise, follow the passages.
    """

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="pieces of the passages that matter most")
    question: str = dspy.InputField()
    analysis: str = dspy.OutputField(desc="what the notes say about the question")
    first_answer: str = dspy.OutputField(desc="by the notes alone; empty if they lack it")
    check: str = dspy.OutputField(desc="whether the passages agree, and what they say instead")
    answer: str = dspy.OutputField(desc=BRIEF)


class SynthesizeAnswer(dspy.Signature):
    """Answer the question from the notes."""

    notes: list[str] = dspy.InputField(desc="what was found out")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


class CombineNotes(dspy.Signature):
    """Answer the question from the notes."""

    notes: list[str] = dspy.InputField(desc="what was found out")
    question: str = dspy.InputField()
    instruction: str = dspy.InputField(desc="how to combine the notes; may be empty")
    answer: str = dspy.OutputField(desc=BRIEF)


class RefineAnswer(dspy.Signature):
    """Correct or complete the draft answer from the passages and the notes."""

    context: list[str] = dspy.InputField(desc="passages; may be empty")
    notes: list[str] = dspy.InputField(desc="what was found out")
    question: str = dspy.InputField()
    draft: str = dspy.InputField(desc="the answer so far; may be empty")
    answer: str = dspy.OutputField(desc=BRIEF)


# What a loop of code found out, where it ended without an answer of its own.
class AnswerFromCode(dspy.Signature):
    """Answer the question from what the code showed."""

    environment: list[str] = dspy.InputField(desc="variables of the code")
    trajectory: str = dspy.InputField(desc="turns of code, and what each showed")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
