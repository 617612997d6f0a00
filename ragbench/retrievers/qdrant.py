"""Qdrant: words and vectors of the passages in a collection of a server.

The weight of a word in a passage is BM25's, computed here by `bm25` and uploaded as a sparse
vector. A query is the sparse vector of its word counts, so their product is the score of `bm25`.
Qdrant's own statistics (`Modifier.IDF`) would be those of each shard. Rankings by words and by
vectors are fused as in `hybrid`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from pydantic import Field

from ragbench.errors import ConfigError, DataError, LMSetupError
from ragbench.lms.specs import checked_address
from ragbench.passages import Corpus
from ragbench.retrievers.base import RETRIEVERS, Hits, Progress, Ranking
from ragbench.retrievers.bm25 import BM25, BM25Settings
from ragbench.retrievers.dense import Dense, EmbeddingSettings
from ragbench.retrievers.hybrid import FusionSettings, Hybrid
from ragbench.retrievers.scores import Found, whole_ties
from ragbench.retrievers.search_server import SearchServer
from ragbench.retrievers.store import index_key

#: Points in a request. 256 vectors of 1,536 numbers are 8 MB of JSON. A server accepts 32 MB.
_BATCH = 256
#: Rankings in a request.
_QUERIES = 64
#: Minimum number of candidates of a search in a server's graph of vectors.
_CANDIDATES = 128
#: Hits beyond which a tie stays as Qdrant cuts it.
_DEEPEST = 100_000


class QdrantSettings(EmbeddingSettings, FusionSettings, BM25Settings):
    """Parameters of Qdrant."""

    url: str = Field("", description="server, such as http://127.0.0.1:6333")


@RETRIEVERS.register("qdrant")
class Qdrant(Hybrid):
    """Search by words and by vectors in a collection of a Qdrant server.

    The index store keeps the words and the vectors that fill the collection. A complete collection
    is used without embedding anything. An incomplete one is filled again.
    """

    name = "qdrant"
    Settings = QdrantSettings
    _collection = ""

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        Ranking.__init__(self, corpus, **settings)
        settings = self.settings.model_dump()
        if not settings["url"]:
            raise ConfigError("retriever qdrant needs a server: --retriever-set url=http://...")
        url = checked_address(settings["url"], "url")
        self.server = SearchServer("qdrant", url, header="api-key", variable="QDRANT_API_KEY")
        self._words = BM25(corpus, **{name: settings[name] for name in BM25Settings.model_fields})
        shared = {name: settings[name] for name in EmbeddingSettings.model_fields}
        self._dense = Dense(corpus, index="exact", **shared)
        self.parts = (self._words, self._dense)

    def prepare_restricted(self, store: Any, progress: Progress | None) -> None:
        """Refuse the distractor setting.

        Raises:
            ConfigError: Always, because a collection holds the whole corpus.
        """
        raise ConfigError("retriever qdrant searches the whole corpus; use --setting pooled")

    def index_settings(self) -> dict[str, Any]:
        settings = {"mode": "hybrid", "title": self.settings.title}
        return {**settings, **self._words.index_settings(), **self._dense.index_settings()}

    def facts(self) -> dict[str, Any]:
        return {"server": self.settings.url, "collection": self._collection}

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Open the collection, and fill it if points are missing. Only then embed passages."""
        n = len(self.corpus)
        with self._lock:
            if not self._ready and n:
                self._collection = index_key(self).replace(self.name, "ragbench")
                self._words.build(store, progress)
                if self._points() < n:
                    self._dense.build(store, progress)
                    self._fill(progress)
                points = self._points()
                if points != n:
                    raise DataError(
                        f"collection {self._collection} of {self.server.identity} has {points} "
                        f"points for {n} passages; delete it there, and ragbench makes it again"
                    )
            self._ready = True
        return self

    def _points(self) -> int:
        """Return the number of points in the collection, or -1 if it does not exist."""
        if not self._ask("GET", "/exists", None, lambda result: result["exists"]):
            return -1
        exact = {"exact": True}
        count: int = self._ask("POST", "/points/count", exact, lambda result: result["count"])
        return count

    def _fill(self, progress: Progress | None) -> None:
        """Send all points, to a collection that is created first if it does not exist."""
        if self._points() < 0:
            size = self._dense.vectors_of([0]).shape[1]
            vectors = {"vector": {"size": size, "distance": "Dot"}}
            try:
                self._ask("PUT", "", {"vectors": vectors, "sparse_vectors": {"words": {}}})
            except LMSetupError:  # another process created it, or an attempt that was lost
                if self._points() < 0:
                    raise
        n = len(self.corpus)
        postings = self._words.postings
        weights = postings.by_passage(n) if postings else None
        for start in range(0, n, _BATCH):
            places = range(start, min(start + _BATCH, n))
            points = []
            for i, vector in zip(places, self._dense.vectors_of(places).tolist(), strict=True):
                sides = {"vector": vector}
                if weights is not None:
                    held = slice(*weights.indptr[i : i + 2])
                    if words := _sparse(weights.indices[held], weights.data[held]):
                        sides["words"] = words
                points.append({"id": i, "vector": sides})
            self._ask("PUT", "/points?wait=true", {"points": points})
            if progress:
                progress(places.stop, n)

    def _rankings(self, queries: Sequence[str], k: int) -> Sequence[list[Hits]]:
        postings = self._words.postings
        counted = []
        for query in queries:
            known = postings.places(self._words.words(query)) if postings else []
            places, counts = np.unique(known, return_counts=True)
            counted.append(_sparse(places, counts.astype(float)))
        vectors = self._dense.embed_queries(queries).tolist()
        k = min(k, len(self.corpus))
        return [self._ranked("words", counted, k), self._ranked("vector", vectors, k)]

    def _ranked(self, side: str, vectors: Sequence[Any], k: int) -> list[Hits]:
        """Return the `k` best passages for each vector, ties in corpus order. None for None."""
        known = [i for i, vector in enumerate(vectors) if vector]

        def find(rows: Sequence[int], depth: int) -> list[Found]:
            rankings: list[Found] = []
            walk = {"hnsw_ef": max(_CANDIDATES, depth)}
            for start in range(0, len(rows), _QUERIES):
                searches = []
                for row in rows[start : start + _QUERIES]:
                    search = {"query": vectors[known[row]], "using": side, "limit": depth}
                    searches.append({**search, "params": walk})
                route = "/points/query/batch"
                read = partial(self._read, len(searches))
                rankings += self._ask("POST", route, {"searches": searches}, read)
            return rankings

        found = whole_ties(find, len(known), k, min(len(self.corpus), _DEEPEST))
        hits = dict(zip(known, found, strict=True))
        return [hits.get(i, []) for i in range(len(vectors))]

    def _read(self, searches: int, result: Any) -> list[Found]:
        """Return positions and scores of the rankings of `searches` searches.

        Args:
            searches: Number of searches.
            result: Rankings in the reply.

        Raises:
            ValueError: A ranking is missing, or a point is not a passage, occurs twice or has no
                finite score.
        """
        n = len(self.corpus)
        if len(result) != searches:
            raise ValueError(f"{len(result)} rankings for {searches} searches")
        rankings = []
        for ranking in result:
            hits = {point["id"]: point["score"] for point in ranking["points"]}
            is_known = all(type(place) is int and 0 <= place < n for place in hits)
            if len(hits) < len(ranking["points"]) or not is_known:
                raise ValueError(f"points that are none of {n} passages")
            if not all(map(math.isfinite, hits.values())):
                raise ValueError("a score is not finite")
            rankings.append((np.array([*hits], np.int64), np.array([*hits.values()], np.float32)))
        return rankings

    def _ask(
        self, method: str, route: str, body: Any, read: Callable[[Any], Any] = lambda result: None
    ) -> Any:
        """Send a request about the collection and return what `read` makes of its result."""
        url = f"{self.settings.url.rstrip('/')}/collections/{self._collection}{route}"
        try:
            return read(self.server.ask(method, url, body)["result"])
        except (LookupError, TypeError, ValueError) as error:
            raise LMSetupError(
                f"{self.server.identity} does not answer as Qdrant does: {str(error)[:200]}; "
                "check its address"
            ) from None


def _sparse(places: Any, values: Any) -> dict[str, Any] | None:
    """Return the sparse vector of `values` at `places`. None if it is empty."""
    if not len(places):
        return None
    return {"indices": places.tolist(), "values": values.tolist()}
