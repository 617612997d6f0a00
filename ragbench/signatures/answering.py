"""Signatures that end in an answer to the question."""

import dspy

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
