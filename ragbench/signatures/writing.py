"""Questions written from passages: `ragbench questions`."""

import dspy


class WriteQuestion(dspy.Signature):
    """Write one question that takes every passage to answer, in the order given.

    The question names only a thing that the first passage alone tells of, and leads to the rest by
    how each is related to the one before. The answer is a short span of the last passage and is not
    in the question.
    """

    passages: list[str] = dspy.InputField(desc="passages, each linked to the next")
    links: list[str] = dspy.InputField(desc="names by which each passage is linked to the next")
    question: str = dspy.OutputField(desc="one sentence, which names none of the links")
    answer: str = dspy.OutputField(
        desc="the complete name, date, number or phrase alone, as the last passage writes it"
    )
    sentences: list[str] = dspy.OutputField(
        desc="for each passage the one sentence that is needed, word for word"
    )
