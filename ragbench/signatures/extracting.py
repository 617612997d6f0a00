"""Signatures that read facts off passages."""

import dspy

from ragbench.signatures.types import Fact


class FactExtract(dspy.Signature):
    """Extract the facts from the passages that serve the requirement."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    known_facts: list[str] = dspy.InputField()
    requirement: str = dspy.InputField()
    facts: list[Fact] = dspy.OutputField()
