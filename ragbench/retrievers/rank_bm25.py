"""BM25 as the package rank-bm25 computes it, for parity with what others report with it.

Tokens are the lower-case text split on blanks, punctuation and all. Stop words stay. `bm25` is the
faster one, and finds more.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import RETRIEVERS, Hits, Progress, Ranking, best


class RankBM25Settings(Knobs):
    """Knobs of rank-bm25's `BM25Okapi`, with its defaults."""

    k1: float = Field(1.5, ge=0, le=10, description="saturation of repeated words")
    b: float = Field(0.75, ge=0, le=1, description="normalisation by length")
    epsilon: float = Field(
        0.25, ge=0, le=1, description="weight of words in most passages, as a share of the mean idf"
    )


@RETRIEVERS.register("rank_bm25")
class RankBM25(Ranking):
    """Lexical search by rank-bm25, over words split on blanks."""

    name = "rank_bm25"
    Settings = RankBM25Settings

    index: Any = None  # remains None if no passage has words

    def _make(self, progress: Progress | None) -> None:
        from rank_bm25 import BM25Okapi

        texts = [_tokens(f"{p.title} {p.text}") for p in self.corpus.passages]
        if any(texts):
            self.index = BM25Okapi(texts, **self.settings.model_dump())

    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        if self.index is None:
            return [[] for _ in queries]
        rankings = []
        for query in queries:
            scores = np.asarray(self.index.get_scores(_tokens(query)), dtype=np.float32)
            rankings.append(best(scores, k))
        return rankings


def _tokens(text: str) -> list[str]:
    return text.lower().split()
