"""Signatures that turn a question into search queries."""

from typing import Literal

import dspy

QueryMode = Literal["paraphrase", "rewrite", "decompose", "disambiguate", "keywords"]


class ExpandQueries(dspy.Signature):
    """Write n search queries of the given kind for the question."""

    question: str = dspy.InputField()
    mode: QueryMode = dspy.InputField()
    n: int = dspy.InputField()
    queries: list[str] = dspy.OutputField()
