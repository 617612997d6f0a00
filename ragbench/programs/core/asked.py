"""The example that is being asked, for what needs more of it than the text of its question."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.context import Context, current


@dataclass(frozen=True)
class Asked:
    """Part of the context of a question: its example."""

    example: dspy.Example


@dataclass(frozen=True)
class Questions:
    """Part of the context of a run: the examples of its data by the texts of their questions.

    An optimizer hands a program the text alone.
    """

    by_text: Mapping[str, dspy.Example]


def example_of(question: str) -> dspy.Example | None:
    """The example of `question`: the one that is asked, else that of the run's data, if any."""
    asked = current().get(Asked)
    if asked is not None:
        return asked.example
    questions = current().get(Questions)
    if questions is not None:
        return questions.by_text.get(question)
    return None


def asking(question: str, inputs: Mapping[str, Any]) -> Context:
    """The context in which `question` is asked with further `inputs`; the current one for none."""
    if not inputs:
        return current()
    example = dspy.Example(question=question, **inputs).with_inputs("question", *inputs)
    return current().plus(Asked(example))
