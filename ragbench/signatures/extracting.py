"""Signatures that read facts off passages."""

import dspy

from ragbench.signatures.types import Fact


class FactExtract(dspy.Signature):
    """Write what the passages state about the requirement, one full sentence per fact."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    known_facts: list[str] = dspy.InputField()
    requirement: str = dspy.InputField()
    facts: list[Fact] = dspy.OutputField()
