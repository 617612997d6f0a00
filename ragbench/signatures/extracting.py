"""Signatures that read facts off passages."""

import dspy

from ragbench.signatures.types import Binding, Fact


class FactExtract(dspy.Signature):
    """Write what the passages state about the requirement, one full sentence per fact."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    known_facts: list[str] = dspy.InputField()
    requirement: str = dspy.InputField()
    facts: list[Fact] = dspy.OutputField()


# One row per value, not a mapping: a free-form object cannot be held to a schema.
class BindVariables(dspy.Signature):
    """Read the values of the variables off the passages. Leave out a variable with none."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    query: str = dspy.InputField(desc="what the passages were looked up with")
    variables: list[str] = dspy.InputField()
    bindings: list[Binding] = dspy.OutputField(desc="as few words as possible for each value")


# Index time: one call per cluster of a summary tree (Sarthi et al. 2024, arXiv:2401.18059).
class Summarize(dspy.Signature):
    """Summarize the texts together. Keep names, numbers and dates."""

    texts: list[str] = dspy.InputField()
    max_words: int = dspy.InputField()
    summary: str = dspy.OutputField()
