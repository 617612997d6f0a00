"""Signatures that end in an answer to the question."""

import dspy


class AnswerFromContext(dspy.Signature):
    """Answer the question from the passages in as few words as possible."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


# The loop's own thoughts and facts help a forced answer; the plain reader has no such field, so
# that its prompt stays the same for every program.
class AnswerWithHints(dspy.Signature):
    """Answer the question from the passages and the notes in as few words as possible."""

    context: list[str] = dspy.InputField()
    notes: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class DirectAnswer(dspy.Signature):
    """Answer the question in as few words as possible."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


# The notes are what related sub-questions have already settled.
class AnswerWithConfidence(dspy.Signature):
    """Answer the question from the passages and the notes in as few words as possible. Rate it."""

    context: list[str] = dspy.InputField()
    notes: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()
    confidence: float = dspy.OutputField(desc="0 to 1: how well the passages settle it")


# Passages are shown as "[n] [node.rank] title | text", the nodes are those of the plan.
class AnswerFromPlan(dspy.Signature):
    """Answer the question from the passages in as few words as possible, and cite them."""

    plan: list[str] = dspy.InputField(desc="what was looked up")
    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()
    citations: list[int] = dspy.OutputField(desc="numbers of the passages that prove the answer")


class SynthesizeAnswer(dspy.Signature):
    """Answer the question from the notes in as few words as possible."""

    notes: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    instruction: str = dspy.InputField(desc="how to combine the notes; may be empty")
    answer: str = dspy.OutputField()


class RefineAnswer(dspy.Signature):
    """Correct or complete the draft answer from the notes, in as few words as possible."""

    notes: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    draft: str = dspy.InputField()
    answer: str = dspy.OutputField()
