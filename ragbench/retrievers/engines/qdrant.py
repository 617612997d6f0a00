"""Qdrant: words and vectors of the passages in a collection, on a server or in this process.

What a word weighs in a passage is BM25's weight, made here by `bm25` and uploaded as a sparse
vector; a query is the sparse vector of its words' counts, so that their product is the score of
`bm25`. Statistics of the engine's own (`Modifier.IDF`) would be those of each shard.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Self

import numpy as np
from pydantic import Field

from ragbench.errors import DataError, LMSetupError, needs_extra
from ragbench.lms.specs import checked_address
from ragbench.passages import Corpus
from ragbench.retrievers.base import RETRIEVERS, Progress
from ragbench.retrievers.bm25 import BM25, BM25Settings
from ragbench.retrievers.engines.base import Asked, Engine, EngineSettings
from ragbench.retrievers.engines.server import SearchServer
from ragbench.retrievers.scores import Found
from ragbench.retrievers.store import index_key

#: Points sent at once: 256 vectors of 1,536 numbers are 8 MB of JSON; a server takes 32.
BATCH = 256
#: Rankings asked for at once.
_QUERIES_AT_ONCE = 64
#: Candidates of a search in a server's graph of vectors, at the least.
_CANDIDATES = 128


class QdrantSettings(EngineSettings, BM25Settings):
    """Knobs of Qdrant."""

    url: str = Field(
        "", description="server, such as http://127.0.0.1:6333; empty: memory of this process"
    )


@RETRIEVERS.register("qdrant")
class Qdrant(Engine):
    """Search by words, by vectors or by both in a collection of Qdrant.

    The index store keeps the words and the vectors that the collection is filled with. A collection
    on a server that has all points already is used without embedding anything; one that lacks some
    is sent all again, which writes over those it has.
    """

    name = "qdrant"
    Settings = QdrantSettings
    _deepest = 100_000

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        url = checked_address(self.settings.url, "url")
        if self.settings.mode != "vector":
            words = self.settings.model_dump(include={*BM25Settings.model_fields})
            self.parts = (BM25(corpus, **words), *self.parts)
        self.server = None
        if url:
            self.server = SearchServer("qdrant", url, header="api-key", variable="QDRANT_API_KEY")
        self._where = self.server.identity if self.server is not None else "memory"
        self._client: Any = None  # None over an empty corpus
        self._facts: dict[str, Any] = {}

    @property
    def _words(self) -> BM25 | None:
        return next((inner for inner in self.parts if isinstance(inner, BM25)), None)

    def restrict(self, positions: Sequence[int], **options: Any) -> Self:
        """Returns a collection in this process over the passages at `positions`."""
        return super().restrict(positions, **{**options, "url": ""})

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Open the collection, and fill it where it lacks points; vectors are made only then."""
        with self._lock:
            if not self._ready and (n := len(self.corpus)):
                if self._words is not None:
                    self._words.build(store, progress)
                self._connect()
                if self._held() < n:
                    if self._dense is not None:
                        self._dense.build(store, progress)
                    self._fill(progress)
                if (held := self._held()) != n:
                    raise DataError(
                        f"collection {self._name} of {self._where} has {held} points for {n} "
                        "passages; delete it there, and it is made again"
                    )
            self._ready = True
        return self

    def index_settings(self) -> dict[str, Any]:
        settings = {**super().index_settings(), "url": self.settings.url}
        if self._words is not None:
            settings |= self._words.index_settings()
        return settings

    def facts(self) -> dict[str, Any]:
        return self._facts

    def _connect(self) -> None:
        with needs_extra("retriever qdrant"):
            from qdrant_client import QdrantClient
        self._name = index_key(self, without="url").replace(self.name, "ragbench")
        if self.server is None:
            self._client = QdrantClient(":memory:")
            self._facts = {"engine": f"qdrant-client {version('qdrant-client')} in memory"}
            return
        # The transport adds the key. The check would be a thread that warns.
        url = self.settings.url
        self._client = QdrantClient(url=url, transport=self.server, check_compatibility=False)
        with self._answers():
            engine = f"qdrant {self._client.info().version}"
        self._facts = {"engine": engine, "server": url, "collection": self._name}

    def _held(self) -> int:
        """Returns how many points the collection has; -1 where there is none."""
        with self._answers():
            if not self._client.collection_exists(self._name):
                return -1
            count: int = self._client.count(self._name, exact=True).count
            return count

    def _fill(self, progress: Progress | None) -> None:
        """Send all points, to a collection that is made first where there is none."""
        from qdrant_client import models

        n = len(self.corpus)
        dense = self._dense
        if self._held() < 0:
            vectors = {}
            words = {}
            if self._words is not None:
                words["words"] = models.SparseVectorParams()
            if dense is not None:
                size = dense.vectors_of([0]).shape[1]
                vectors["vector"] = models.VectorParams(size=size, distance=models.Distance.DOT)
            try:
                with self._answers():
                    self._client.create_collection(self._name, vectors, words)
            except LMSetupError:  # somebody else made it meanwhile, or a first attempt did
                if self._held() < 0:
                    raise
        weights = None
        if self._words is not None and self._words.postings is not None:
            weights = self._words.postings.by_passage(n)
        for start in range(0, n, BATCH):
            places = range(start, min(start + BATCH, n))
            rows = []
            if dense is not None:
                rows = dense.vectors_of(places).tolist()
            points = []
            for i in places:
                sides: dict[str, Any] = {"vector": rows[i - start]} if rows else {}
                if weights is not None and weights.indptr[i] < weights.indptr[i + 1]:
                    held = slice(*weights.indptr[i : i + 2])
                    ids = weights.indices[held].tolist()
                    values = weights.data[held].tolist()
                    sides["words"] = models.SparseVector(indices=ids, values=values)
                points.append(models.PointStruct(id=i, vector=sides))
            with self._answers():
                self._client.upsert(self._name, points, wait=True)
            if progress:
                progress(places.stop, n)

    def _find(self, inputs: Sequence[Asked], depth: int) -> list[Found]:
        """Returns at most `depth` points for each that is asked, best first."""
        requests = [self._request(entry, depth) for entry in inputs]
        places = [i for i, request in enumerate(requests) if request is not None]
        results: list[Found] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(inputs)
        for start in range(0, len(places), _QUERIES_AT_ONCE):
            batch = places[start : start + _QUERIES_AT_ONCE]
            with self._answers():
                answers = self._client.query_batch_points(self._name, [requests[i] for i in batch])
                for i, answer in zip(batch, answers, strict=True):
                    results[i] = _read(answer.points, len(self.corpus))
        return results

    def _request(self, entry: Asked, depth: int) -> Any:
        """Returns what is asked for one ranking; None for words that no passage has."""
        from qdrant_client import models

        if not isinstance(entry, str):
            # In memory all vectors are compared, and the client warns of what has no effect.
            ef = models.SearchParams(hnsw_ef=max(_CANDIDATES, depth))
            walk = ef if self.server is not None else None
            return models.QueryRequest(
                query=entry.tolist(), using="vector", params=walk, limit=depth
            )
        assert self._words is not None
        if self._words.postings is None:
            return None
        counts = Counter(self._words.postings.places(self._words.words(entry)))
        if not counts:
            return None
        ids = sorted(counts)
        words = models.SparseVector(indices=ids, values=[float(counts[place]) for place in ids])
        return models.QueryRequest(query=words, using="words", limit=depth)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Unwrap what the transport raised; LMSetupError for what is no answer of Qdrant's."""
        from pydantic import ValidationError
        from qdrant_client.http.exceptions import ResponseHandlingException

        try:
            yield
        except ResponseHandlingException as error:
            if not isinstance(error.source, ValidationError):
                raise error.source from None
            why = error.source.errors()[0]["msg"]
        # By an AssertionError the client checks that there is a result.
        except (AssertionError, ValueError) as error:
            why = str(error)
        else:
            return
        raise LMSetupError(
            f"{self._where} does not answer as Qdrant does: {why[:200]}; check its address"
        )


def _read(points: Any, n: int) -> Found:
    """Returns positions and scores of an answer."""
    places = [point.id for point in points]
    scores = [point.score for point in points]
    good = all(type(place) is int and 0 <= place < n for place in places)
    if not (good and len({*places}) == len(places) and all(map(math.isfinite, scores))):
        raise ValueError(f"points that are none of {n} passages")
    return np.array(places, np.int64), np.array(scores, np.float32)
