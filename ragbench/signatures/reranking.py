"""Signatures that order passages by how well they answer a question."""

import dspy


# Listwise, as RankGPT (Sun et al. 2023, arXiv:2304.09542), over typed numbers.
class RankPassages(dspy.Signature):
    """Order the numbered passages from most to least helpful for the query."""

    query: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    ranking: list[int] = dspy.OutputField(desc="passage numbers, best first")
