"""The example of the current question, for code that needs more than the question's text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.context import Context, current


@dataclass(frozen=True)
class CurrentExample:
    """Part of the context of a question: its example."""

    example: dspy.Example


@dataclass(frozen=True)
class Questions:
    """Part of the context of a run: the examples of its data by question text.

    An optimizer passes only the text to a program.
    """

    by_text: Mapping[str, dspy.Example]


def example_of(question: str) -> dspy.Example | None:
    """Return the example of `question`, or None if unknown.

    The example of the current question comes first, then the run's data.
    """
    current_question = current().get(CurrentExample)
    if current_question is not None:
        return current_question.example
    questions = current().get(Questions)
    if questions is not None:
        return questions.by_text.get(question)
    return None


def asking(question: str, inputs: Mapping[str, Any]) -> Context:
    """Return the context in which a program answers `question`.

    Args:
        question: Text of the question.
        inputs: Further inputs of the example. If empty, the current context is returned.
    """
    if not inputs:
        return current()
    example = dspy.Example(question=question, **inputs).with_inputs("question", *inputs)
    return current().plus(CurrentExample(example))
