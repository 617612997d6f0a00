"""Two retrievers asked at once and their rankings fused.

`rrf` is reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009) with a weight per side;
`minmax` adds the scores of each side after stretching them to [0, 1] (see Bruch, Gai and Ingber
2023, arXiv:2210.11934).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.ledger import fan_out
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Retriever
from ragbench.retrievers.factory import make_retriever
from ragbench.retrievers.scores import reciprocal_ranks, stretched


class HybridSettings(Knobs):
    """Knobs of fusion."""

    sparse: str = Field("bm25", description="spec of one side, such as bm25(k1=1.2)")
    dense: str = Field("dense", description="spec of the other side")
    fusion: Literal["rrf", "minmax"] = Field("rrf", description="of ranks, or of scores")
    rrf_k: float = Field(60, gt=0, le=10_000, description="evens out the ranks; smaller is steeper")
    dense_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the dense side; the sparse side has the rest"
    )
    depth: int = Field(2, ge=1, le=100, description="each side is asked for this many times k")


@RETRIEVERS.register("hybrid")
class Hybrid(Retriever):
    """Sparse and dense search at once, fused by rank or by score."""

    name = "hybrid"
    Settings = HybridSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._sides = tuple(
            make_retriever(spec, corpus) for spec in (self.settings.sparse, self.settings.dense)
        )
        weight = self.settings.dense_weight
        self._weights = (1 - weight, weight)

    @property
    def parts(self) -> tuple[Retriever, ...]:
        """The sparse and the dense side."""
        return self._sides

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The `k` best by fused score, best first."""
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; each side is asked once for all queries."""
        self.build()
        if k < 1 or not queries:
            return [[] for _ in queries]
        depth = k * self.settings.depth
        sparse, dense = fan_out(lambda side: side.search_many(queries, k=depth), self._sides)
        return [self._fuse(sides, k) for sides in zip(sparse, dense, strict=True)]

    def restrict(self, positions: Sequence[int]) -> Hybrid:
        """The same fusion of both sides, restricted."""
        small = type(self)(self.corpus.subset(positions), **self.settings.model_dump())
        small._sides = tuple(side.restrict(positions) for side in self._sides)
        return small

    def _fuse(self, sides: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
        by_rank = partial(reciprocal_ranks, rrf_k=self.settings.rrf_k)
        score = by_rank if self.settings.fusion == "rrf" else stretched
        fused: dict[str, float] = {}
        for side, weight in zip(sides, self._weights, strict=True):
            for pid, value in score(side).items() if weight else ():
                fused[pid] = fused.get(pid, 0.0) + weight * value
        positions = self.corpus.positions
        best = sorted(fused, key=lambda pid: (-fused[pid], positions[pid]))[:k]
        return [self.corpus.passages[positions[pid]].scored(fused[pid]) for pid in best]
