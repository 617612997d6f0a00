"""Qdrant: words and vectors of the passages in a collection, on a server or in this process.

The weight of a word in a passage is BM25's, computed here by `bm25` and uploaded as a sparse
vector. A query is the sparse vector of its word counts, so their product is the score of `bm25`.
Qdrant's own statistics (`Modifier.IDF`) would be those of each shard. Rankings by words and by
vectors are fused by reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009), as in `hybrid`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from ragbench.errors import DataError, LMSetupError, needs_extra
from ragbench.lms.specs import checked_address
from ragbench.passages import Corpus
from ragbench.retrievers.base import RETRIEVERS, Hits, Progress, Ranking
from ragbench.retrievers.bm25 import BM25, BM25Settings
from ragbench.retrievers.dense import Dense, EmbeddingSettings
from ragbench.retrievers.hybrid import FusionSettings
from ragbench.retrievers.scores import Found, by_rank, fused, whole_ties
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

    url: str = Field(
        "", description="server, such as http://127.0.0.1:6333; empty: memory of this process"
    )
    mode: Literal["hybrid", "text", "vector"] = Field(
        "hybrid", description="search words (text), vectors, or both"
    )


@RETRIEVERS.register("qdrant")
class Qdrant(Ranking):
    """Search by words, by vectors or by both in a collection of Qdrant.

    The index store keeps the words and the vectors that fill the collection. A complete collection
    on a server is used without embedding anything. An incomplete one is filled again.
    """

    name = "qdrant"
    Settings = QdrantSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._words: BM25 | None = None
        self._dense: Dense | None = None
        if self.settings.mode != "vector":
            words = self.settings.model_dump(include={*BM25Settings.model_fields})
            self._words = BM25(corpus, **words)
        if self.settings.mode != "text":
            shared = self.settings.model_dump(include={*EmbeddingSettings.model_fields})
            self._dense = Dense(corpus, index="exact", **shared)
        self.parts = tuple(inner for inner in (self._words, self._dense) if inner is not None)
        url = checked_address(self.settings.url, "url")
        self.server = None
        if url:
            self.server = SearchServer("qdrant", url, header="api-key", variable="QDRANT_API_KEY")
        self._where = self.server.identity if self.server is not None else "memory"
        self._client: Any = None  # stays None if the corpus is empty
        self._facts: dict[str, Any] = {}

    def restrict(self, positions: Sequence[int], **options: Any) -> Self:
        """Return a collection in this process over the passages at `positions`."""
        small = super().restrict(positions, **{**options, "url": ""})
        small._words, small._dense = None, None
        for inner in small.parts:
            if isinstance(inner, BM25):
                small._words = inner
            elif isinstance(inner, Dense):
                small._dense = inner
        return small

    def index_settings(self) -> dict[str, Any]:
        settings = {"mode": self.settings.mode, "title": self.settings.title}
        for inner in self.parts:
            settings |= inner.index_settings()
        return {**settings, "url": self.settings.url}

    def facts(self) -> dict[str, Any]:
        return self._facts

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Open the collection, and fill it if points are missing. Only then embed passages."""
        with self._lock:
            n = len(self.corpus)
            if not self._ready and n:
                if self._words is not None:
                    self._words.build(store, progress)
                self._connect()
                if self._points() < n:
                    if self._dense is not None:
                        self._dense.build(store, progress)
                    self._fill(progress)
                points = self._points()
                if points != n:
                    raise DataError(
                        f"collection {self._name} of {self._where} has {points} points for {n} "
                        "passages; delete it there, and ragbench makes it again"
                    )
            self._ready = True
        return self

    def _connect(self) -> None:
        with needs_extra("retriever qdrant"):
            from qdrant_client import QdrantClient
        self._name = index_key(self, without="url").replace(self.name, "ragbench")
        if self.server is None:
            self._client = QdrantClient(":memory:")
            self._facts = {"engine": f"qdrant-client {version('qdrant-client')} in memory"}
            return
        # The transport adds the key. The client's own check would be a thread that warns.
        url = self.settings.url
        self._client = QdrantClient(url=url, transport=self.server, check_compatibility=False)
        with self._replies():
            engine = f"qdrant {self._client.info().version}"
        self._facts = {"engine": engine, "server": url, "collection": self._name}

    def _points(self) -> int:
        """Return the number of points in the collection, or -1 if it does not exist."""
        with self._replies():
            if not self._client.collection_exists(self._name):
                return -1
            count: int = self._client.count(self._name, exact=True).count
            return count

    def _create(self) -> None:
        from qdrant_client import models

        vectors = {}
        words = {}
        if self._words is not None:
            words["words"] = models.SparseVectorParams()
        if self._dense is not None:
            size = self._dense.vectors_of([0]).shape[1]
            vectors["vector"] = models.VectorParams(size=size, distance=models.Distance.DOT)
        try:
            with self._replies():
                self._client.create_collection(self._name, vectors, words)
        except LMSetupError:  # another process created it, or an attempt that was lost
            if self._points() < 0:
                raise

    def _fill(self, progress: Progress | None) -> None:
        """Send all points, to a collection that is created first if it does not exist."""
        from qdrant_client import models

        if self._points() < 0:
            self._create()
        n = len(self.corpus)
        weights = None
        if self._words is not None and self._words.postings is not None:
            weights = self._words.postings.by_passage(n)
        for start in range(0, n, _BATCH):
            places = range(start, min(start + _BATCH, n))
            rows = self._dense.vectors_of(places).tolist() if self._dense is not None else []
            points = []
            for i in places:
                sides: dict[str, Any] = {"vector": rows[i - start]} if rows else {}
                if weights is not None and weights.indptr[i] < weights.indptr[i + 1]:
                    column = slice(*weights.indptr[i : i + 2])
                    ids = weights.indices[column].tolist()
                    values = weights.data[column].tolist()
                    sides["words"] = models.SparseVector(indices=ids, values=values)
                points.append(models.PointStruct(id=i, vector=sides))
            with self._replies():
                self._client.upsert(self._name, points, wait=True)
            if progress:
                progress(places.stop, n)

    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        settings = self.settings
        rankings = []
        depth = min(len(self.corpus), k * settings.depth) if settings.mode == "hybrid" else k
        if self._words is not None:
            rankings.append(self._ranked(list(map(self._word_request, queries)), depth))
        if self._dense is not None:
            vectors = self._dense.embed_queries(queries)
            rankings.append(self._ranked(list(map(self._vector_request, vectors)), depth))
        if len(rankings) == 1:
            return rankings[0]
        weights = (1 - settings.dense_weight, settings.dense_weight)
        hits = []
        for sides in zip(*rankings, strict=True):
            values = [by_rank(side, settings.rrf_k) for side in sides]
            hits.append(fused(list(zip(weights, values, strict=True)), k))
        return hits

    def _ranked(self, requests: Sequence[dict[str, Any] | None], k: int) -> list[Hits]:
        """Return the `k` best passages for each request, ties in corpus order."""

        def find(rows: Sequence[int], depth: int) -> list[Found]:
            return self._find([requests[row] for row in rows], depth)

        return whole_ties(find, len(requests), k, min(len(self.corpus), _DEEPEST))

    def _find(self, requests: Sequence[dict[str, Any] | None], depth: int) -> list[Found]:
        """Return at most `depth` points for each request, best first. None for None."""
        from qdrant_client import models

        points: list[Found] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(requests)
        places = [i for i, request in enumerate(requests) if request is not None]
        for start in range(0, len(places), _QUERIES):
            batch = places[start : start + _QUERIES]
            sent = []
            for i in batch:
                walk = None
                if self.server is not None and "vector" in requests[i].values():  # type: ignore[union-attr]
                    walk = models.SearchParams(hnsw_ef=max(_CANDIDATES, depth))
                sent.append(models.QueryRequest(**requests[i], params=walk, limit=depth))  # type: ignore[arg-type]
            with self._replies():
                replies = self._client.query_batch_points(self._name, sent)
                for i, reply in zip(batch, replies, strict=True):
                    points[i] = _read(reply.points, len(self.corpus))
        return points

    def _vector_request(self, vector: Any) -> dict[str, Any]:
        return {"query": vector.tolist(), "using": "vector"}

    def _word_request(self, query: str) -> dict[str, Any] | None:
        """Return the request for the words of `query`. None if no passage has any of them."""
        from qdrant_client import models

        assert self._words is not None
        if self._words.postings is None:
            return None
        counts = Counter(self._words.postings.places(self._words.words(query)))
        if not counts:
            return None
        ids = sorted(counts)
        words = models.SparseVector(indices=ids, values=[float(counts[place]) for place in ids])
        return {"query": words, "using": "words"}

    @contextmanager
    def _replies(self) -> Iterator[None]:
        """Unwrap the errors of the transport. Raise LMSetupError for any other kind of reply."""
        from pydantic import ValidationError
        from qdrant_client.http.exceptions import ResponseHandlingException

        try:
            yield
        except ResponseHandlingException as error:
            if not isinstance(error.source, ValidationError):
                raise error.source from None
            why = error.source.errors()[0]["msg"]
        # The client raises AssertionError if a reply has no result.
        except (AssertionError, ValueError) as error:
            why = str(error)
        else:
            return
        raise LMSetupError(
            f"{self._where} does not answer as Qdrant does: {why[:200]}; check its address"
        )


def _read(points: Any, n: int) -> Found:
    """Return positions and scores of a reply.

    Raises:
        ValueError: A point is not one of the `n` passages, occurs twice or has no finite score.
    """
    places = [point.id for point in points]
    scores = [point.score for point in points]
    good = all(type(place) is int and 0 <= place < n for place in places)
    if not (good and len({*places}) == len(places) and all(map(math.isfinite, scores))):
        raise ValueError(f"points that are none of {n} passages")
    return np.array(places, np.int64), np.array(scores, np.float32)
