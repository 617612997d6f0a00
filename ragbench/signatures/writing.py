"""Questions written from passages: `ragbench questions`."""

import dspy


class WriteQuestion(dspy.Signature):
    """Write one question that needs every passage, in the given order.

    The question names only a thing that the first passage describes. It reaches each later passage
    by a relation to the one before. The answer is a short span of the last passage and is not in
    the question.
    """

    passages: list[str] = dspy.InputField(desc="Passages, each linked to the next.")
    links: list[str] = dspy.InputField(desc="Names that link each passage to the next.")
    question: str = dspy.OutputField(desc="One sentence without any of the links.")
    answer: str = dspy.OutputField(
        desc="Only the complete name, date, number or phrase, as the last passage writes it."
    )
    sentences: list[str] = dspy.OutputField(
        desc="The needed sentences of each passage, copied exactly, one item per passage."
    )


class RewordQuestion(dspy.Signature):
    """Write the question in natural words, as a person asks it.

    Keep its meaning, its answer and every name. Do not name any of the links.
    """

    question: str = dspy.InputField()
    links: list[str] = dspy.InputField(desc="Names that the question must not contain.")
    natural_question: str = dspy.OutputField(desc="One sentence.")
