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


# Index time: one call per cluster of a summary tree (Sarthi et al. 2024, arXiv:2401.18059).
class Summarize(dspy.Signature):
    """Summarize the texts together. Keep names, numbers and dates."""

    texts: list[str] = dspy.InputField()
    max_words: int = dspy.InputField()
    summary: str = dspy.OutputField()
