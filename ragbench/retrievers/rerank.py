"""Any retriever, its first candidates put into a better order."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import RETRIEVERS, Passage
from ragbench.retrievers.factory import Wrapper
from ragbench.retrievers.rerankers import Reranker, make_reranker
from ragbench.retrievers.scores import min_max


class RerankSettings(Knobs):
    """Knobs of reranking."""

    inner: str = Field("hybrid", description="spec of the retriever whose hits are reranked")
    reranker: str = Field(
        "maxsim", description="none, maxsim, cross-encoder:FOLDER, an http address or lm"
    )
    model: str = Field("", description="model that a rerank endpoint is asked for")
    weight: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the reranker's score, the first search having the rest, both "
        "stretched to [0, 1]; default: 0.5 for maxsim, else 1",
    )
    depth: int = Field(20, ge=1, le=1000, description="candidates to rerank, at least k")


@RETRIEVERS.register("rerank")
class Rerank(Wrapper):
    """The hits of another retriever, reordered by a model that reads them."""

    name = "rerank"
    Settings = RerankSettings

    @cached_property
    def reranker(self) -> Reranker | None:
        """The model that scores, None where reranking is off."""
        return make_reranker(self.settings.reranker, self.settings.model)

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; the candidates of all are fetched together."""
        self.build()
        if k < 1:
            return [[] for _ in queries]
        if self.reranker is None:
            return self._inner.search_many(queries, k=k)
        candidates = self._inner.search_many(queries, k=max(k, self.settings.depth))
        return [self._reordered(q, hits, k) for q, hits in zip(queries, candidates, strict=True)]

    def restrict(self, positions: Sequence[int], **other: Any) -> Self:
        """The same reranker over the inner retriever, restricted."""
        small = super().restrict(positions, **other)
        small.reranker = self.reranker
        return small

    def _reordered(self, query: str, hits: list[Passage], k: int) -> list[Passage]:
        if not hits or self.reranker is None:
            return hits
        weight, scores = self.settings.weight, self.reranker.score(query, hits)
        if weight is None:
            # MaxSim over vectors not trained for it is worse than the first search by itself.
            weight = 0.5 if self.settings.reranker.startswith("maxsim") else 1.0
        if weight != 1:
            first, second = min_max([hit.score for hit in hits]), min_max(scores)
            scores = (weight * second + (1 - weight) * first).tolist()
        positions = self.corpus.positions
        scored = [hit.scored(score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(scored, key=lambda p: (-p.score, positions[p.pid]))[:k]
