"""What engines share: words, vectors or both are searched, and both rankings fused.

Both rankings are fused by reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009), as in
`hybrid`. The engine is given vectors, words and positions; the passages stay with the corpus.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.record import Call
from ragbench.retrievers.base import Corpus, Passage, Retriever
from ragbench.retrievers.dense import Dense, EmbeddingSettings
from ragbench.retrievers.embedders import Embedder, Vectors
from ragbench.retrievers.scores import Hits, ordered

#: What one ranking is for: the text of a query, or its vector.
Asked = str | Vectors
#: Positions and scores of passages, best first, ties in any order.
Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


class EngineSettings(EmbeddingSettings):
    """Knobs of every engine."""

    mode: Literal["hybrid", "text", "vector"] = Field(
        "hybrid", description="what is searched: words, vectors, or both"
    )
    rrf_k: float = Field(60, gt=0, le=10_000, description="evens out the ranks; smaller is steeper")
    dense_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the vectors; the words have the rest"
    )
    depth: int = Field(2, ge=1, le=100, description="each side is asked for this many times k")


class Engine(Retriever):
    """Search by words, by vectors or by both; a subclass says what its engine finds (`_find`)."""

    Settings: ClassVar[type[Knobs]] = EngineSettings
    is_stored = True
    #: Hits beyond which a tie is left as the engine cuts it; None to look as deep as it takes.
    _deepest: ClassVar[int | None] = None

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        shared = self.settings.model_dump(include={*EmbeddingSettings.model_fields})
        self._dense = Dense(corpus, **shared)

    @abstractmethod
    def _find(self, asked: Sequence[tuple[Asked, int]]) -> list[Found]:
        """At most so many passages for each that is asked, in order."""

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of passages and queries; None where words alone are searched."""
        return self._dense.embedder if self.settings.mode != "text" else None

    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages, best first."""
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; the queries are embedded and asked together."""
        self.build()
        k = min(k, len(self.corpus))
        asked = [query for query in dict.fromkeys(queries) if query.strip()]
        if k < 1 or not asked:
            return [[] for _ in queries]
        hits_of = dict(zip(asked, self._hits(asked, k), strict=True))
        return [
            [self.corpus.passages[i].scored(score) for i, score in hits_of.get(query, [])]
            for query in queries
        ]

    def index_settings(self) -> dict[str, Any]:
        """What decides the index: the vectors, and whether there are words, vectors or both."""
        vectors = self._dense.index_settings() if self.settings.mode != "text" else {}
        return {**vectors, "mode": self.settings.mode, "title": self.settings.title}

    def facts(self) -> dict[str, Any]:
        """What embedding the passages took."""
        facts = self._dense.facts() if self.settings.mode != "text" else {}
        return {name: value for name, value in facts.items() if name != "vectors"}

    @property
    def index_calls(self) -> list[Call]:
        """The calls that embedding passages has taken in this process; no question's."""
        return self._dense.index_calls

    def _hits(self, queries: Sequence[str], k: int) -> list[Hits]:
        settings = self.settings
        depth = min(len(self.corpus), k * settings.depth) if settings.mode == "hybrid" else k
        asked: list[Asked] = []
        if settings.mode != "vector":
            asked += queries
        if settings.mode != "text":
            asked += list(self._dense.embed_queries(queries))
        ranked = self._ranked(asked, depth)
        sides = [ranked[i : i + len(queries)] for i in range(0, len(ranked), len(queries))]
        if len(sides) == 1:
            return sides[0]
        return [self._fused(words, vectors)[:k] for words, vectors in zip(*sides, strict=True)]

    def _fused(self, words: Hits, vectors: Hits) -> Hits:
        share = self.settings.dense_weight
        fused: dict[int, float] = {}
        for weight, hits in ((1 - share, words), (share, vectors)):
            for rank, (place, _) in enumerate(hits if weight else [], start=1):
                fused[place] = fused.get(place, 0.0) + weight / (self.settings.rrf_k + rank)
        return sorted(fused.items(), key=lambda hit: (-hit[1], hit[0]))

    def _ranked(self, asked: Sequence[Asked], k: int) -> list[Hits]:
        """The `k` best for each, ties in corpus order: looks deeper until a cut tie is whole."""
        deepest = min(len(self.corpus), self._deepest or len(self.corpus))
        depth = max(k, min(deepest, k + 8))
        found = self._find([(one, depth) for one in asked])
        while cut := [i for i, one in enumerate(found) if depth < deepest and _cut(one, k, depth)]:
            depth = min(deepest, 8 * depth)
            for i, one in zip(cut, self._find([(asked[i], depth) for i in cut]), strict=True):
                found[i] = one
        return [ordered(places, scores, k) for places, scores in found]


def _cut(found: Found, k: int, depth: int) -> bool:
    """Whether passages that tie with the `k`-th may stand beyond `depth`."""
    places, scores = found
    return len(places) == depth and bool(scores[-1] == scores[k - 1])
