"""Two retrievers asked at once and their rankings fused.

`rrf` is reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009) with a weight per side;
`minmax` adds the scores of each side after stretching them to [0, 1] (see Bruch, Gai and Ingber
2023, arXiv:2210.11934).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.ledger import fan_out
from ragbench.passages import Corpus
from ragbench.retrievers.base import RETRIEVERS, Hits, Ranking, Retriever
from ragbench.retrievers.factory import make_retriever
from ragbench.retrievers.scores import by_rank, fused, min_max


class FusionSettings(Knobs):
    """Knobs of what fuses words and vectors."""

    rrf_k: float = Field(60, gt=0, le=10_000, description="evens out the ranks; smaller is steeper")
    dense_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the vectors; the words have the rest"
    )
    depth: int = Field(2, ge=1, le=100, description="each side returns this multiple of k")
    fusion: Literal["rrf", "minmax"] = Field("rrf", description="of ranks, or of scores")


class HybridSettings(FusionSettings):
    """Knobs of fusion."""

    sparse: str = Field("bm25", description="spec of one side, such as bm25(k1=1.2)")
    dense: str = Field("dense", description="spec of the other side")


@RETRIEVERS.register("hybrid")
class Hybrid(Ranking):
    """Sparse and dense search at once, fused by rank or by score."""

    name = "hybrid"
    Settings: ClassVar[type[Knobs]] = HybridSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        specs = self.settings.sparse, self.settings.dense
        self.parts = tuple(make_retriever(spec, corpus) for spec in specs)

    def _hits(self, queries: Sequence[str], k: int) -> list[Hits]:
        weight = self.settings.dense_weight
        hits = []
        for sparse, dense in zip(*self._rankings(queries, k * self.settings.depth), strict=True):
            sides = [(1 - weight, self._values(sparse)), (weight, self._values(dense))]
            hits.append(fused(sides, k))
        return hits

    def _rankings(self, queries: Sequence[str], k: int) -> Sequence[list[Hits]]:
        """Return the rankings of the queries by words, then those by vectors."""

        def rank(side: Retriever) -> list[Hits]:
            rankings = []
            for passages in side.search_many(queries, k=k):
                rankings.append([(self.corpus.positions[p.pid], p.score) for p in passages])
            return rankings

        return fan_out(rank, self.parts)

    def _values(self, hits: Hits) -> dict[int, float]:
        if self.settings.fusion == "rrf":
            return by_rank(hits, self.settings.rrf_k)
        scores = min_max([score for _, score in hits]).tolist()
        return {place: score for (place, _), score in zip(hits, scores, strict=True)}
