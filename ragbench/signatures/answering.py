"""Signatures that end in an answer to the question."""

import dspy

from ragbench.signatures.types import StatedFact
from ragbench.signatures.wording import BRIEF, SPAN


class AnswerFromContext(dspy.Signature):
    """Answer the question from the passages."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


# The loop's own thoughts and facts help a forced answer; the plain reader has no such field, so
# that its prompt stays the same for every program.
class AnswerWithHints(dspy.Signature):
    """Answer the question from the passages and the notes."""

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="what was found out on the way")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


class AnswerWithConfidence(dspy.Signature):
    """Answer the question from the passages, or from memory where there are none."""

    context: list[str] = dspy.InputField(desc="passages; may be empty")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    confidence: float = dspy.OutputField(desc="0 to 1: how sure the answer is")


class DirectAnswer(dspy.Signature):
    """Answer the question."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


# The notes are what related sub-questions have already settled.
class AnswerPart(dspy.Signature):
    """Answer the question, which is a part of the main question, from the passages and the notes.

    Where they settle the main question as well, answer that too.
    """

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="sub-questions answered before")
    main_question: str = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(
        desc="the complete name, date, number or phrase alone; empty if not stated"
    )
    confidence: float = dspy.OutputField(desc="0 to 1: how well the passages prove the answer")
    main_answer: str = dspy.OutputField(
        desc=f"to the main question: {SPAN}; empty while facts are missing"
    )


# A step of MA-RAG (Nguyen et al. 2025, arXiv:2505.20096), which may be answered from memory.
class AnswerTask(dspy.Signature):
    """Answer the question from the notes, or from memory where they do not bear on it."""

    notes: list[str] = dspy.InputField(desc="what was found out")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(
        desc="the complete name, date, number or phrase alone; empty if not known"
    )
    success: bool = dspy.OutputField(desc="whether the question is answered")
    rating: int = dspy.OutputField(desc="0 to 10: how sure the answer is")


# A line of the plan: what was looked up, what it found out, the numbers of its passages.
class AnswerFromPlan(dspy.Signature):
    """Answer the question from the passages."""

    plan: list[str] = dspy.InputField(
        desc="what was looked up, what it found out, and the numbers of its passages"
    )
    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    citations: list[int] = dspy.OutputField(desc="numbers of the passages that prove the answer")


class CitedAnswer(dspy.Signature):
    """Write what the passages state that answers the question, then answer it."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField()
    claims: list[StatedFact] = dspy.OutputField(
        desc="one full sentence each, with the numbers of the passages that state it as evidence"
    )
    answer: str = dspy.OutputField(desc=BRIEF)


# FaithfulRAG (Zhang et al. 2025, arXiv:2506.08938): the notes are pieces of the passages that are
# near to what the model remembers.
class AnswerFaithfully(dspy.Signature):
    """Answer the question from the passages and the notes.

    Where memory says otherwise, follow the passages.
    """

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="pieces of the passages that matter most")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)


class AnswerInStages(dspy.Signature):
    """Judge by the notes, check that against the passages, then answer the question.

    Where memory says otherwise, follow the passages.
    """

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="pieces of the passages that matter most")
    question: str = dspy.InputField()
    analysis: str = dspy.OutputField(desc="what the notes say about the question")
    first_answer: str = dspy.OutputField(desc="by the notes alone")
    check: str = dspy.OutputField(desc="whether the passages agree, and what they say instead")
    answer: str = dspy.OutputField(desc=BRIEF)


class SynthesizeAnswer(dspy.Signature):
    """Answer the question from the notes."""

    notes: list[str] = dspy.InputField(desc="what was found out")
    question: str = dspy.InputField()
    instruction: str = dspy.InputField(desc="how to combine the notes; may be empty")
    answer: str = dspy.OutputField(desc=BRIEF)


class RefineAnswer(dspy.Signature):
    """Correct or complete the draft answer from the passages and the notes."""

    context: list[str] = dspy.InputField(desc="passages")
    notes: list[str] = dspy.InputField(desc="what was found out")
    question: str = dspy.InputField()
    draft: str = dspy.InputField(desc="the answer so far")
    answer: str = dspy.OutputField(desc=BRIEF)
