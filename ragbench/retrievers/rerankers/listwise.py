"""The LM of the run orders the passages in one call (Sun et al. 2023, arXiv:2304.09542)."""

from __future__ import annotations

from collections.abc import Sequence

import dspy
from dspy import AdapterParseError

from ragbench.ledger import calling
from ragbench.retrievers.base import Passage
from ragbench.retrievers.rerankers.base import Reranker
from ragbench.signatures import RankPassages


class Listwise(Reranker):
    """One call per search; passages that the LM leaves out keep their order behind the others."""

    in_process = False

    def __init__(self) -> None:
        self._rank = dspy.Predict(RankPassages)

    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """1 / rank; an unreadable reply leaves the order as it was."""
        lines = [f"[{n}] {passage}" for n, passage in enumerate(passages, start=1)]
        with calling("RankPassages", "reranking"):
            try:
                ranking = self._rank(query=query, passages=lines).ranking or []
            except AdapterParseError:
                ranking = []
        named = dict.fromkeys(n - 1 for n in ranking if 1 <= n <= len(passages))
        order = list(named | dict.fromkeys(range(len(passages))))
        scores = [0.0] * len(passages)
        for rank, position in enumerate(order, start=1):
            scores[position] = 1 / rank
        return scores
