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
from ragbench.lms import checked_address
from ragbench.retrievers.base import RETRIEVERS, Corpus, Progress
from ragbench.retrievers.bm25 import BM25, BM25Settings
from ragbench.retrievers.engines.base import Asked, Engine, EngineSettings
from ragbench.retrievers.engines.server import SearchServer
from ragbench.retrievers.scores import Found
from ragbench.retrievers.store import index_key

#: Points sent at once: 256 vectors of 1,536 numbers are 8 MB of JSON; a server takes 32.
BATCH = 256
#: Rankings asked for at once.
_QUERIES_AT_ONCE = 64
KEY_VARIABLE = "QDRANT_API_KEY"


class QdrantSettings(EngineSettings, BM25Settings):
    """Knobs of Qdrant."""

    url: str = Field(
        "", description="server, such as http://127.0.0.1:6333; empty: memory of this process"
    )
    ef_search: int = Field(
        128, ge=1, le=65_536, description="candidates of a search in a server's graph of vectors"
    )


@RETRIEVERS.register("qdrant")
class Qdrant(Engine):
    """Search by words, by vectors or by both in a collection of Qdrant.

    The index store keeps the words and the vectors that the collection is filled with. A collection
    on a server that has all points already is used without embedding anything.
    """

    name = "qdrant"
    Settings = QdrantSettings
    _deepest = 100_000

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._url = checked_address(self.settings.url, "url")
        if self.settings.mode != "vector":
            words = self.settings.model_dump(include={*BM25Settings.model_fields})
            self.parts = (BM25(corpus, **words), *self.parts)
        self.server = None
        if self._url:
            self.server = SearchServer("qdrant", self._url, header="api-key", variable=KEY_VARIABLE)
        self._client: Any = None  # None over an empty corpus
        self._facts: dict[str, Any] = {}
        self._size: int | None = None  # numbers of a vector there

    @property
    def _words(self) -> BM25 | None:
        """What makes and keeps the weights of words."""
        return next((part for part in self.parts if isinstance(part, BM25)), None)

    def restrict(self, positions: Sequence[int], **other: Any) -> Self:
        """A collection in this process over the passages at `positions`."""
        return super().restrict(positions, **{**other, "url": ""})

    def build(self, store: Any = None, progress: Progress | None = None) -> Self:
        """Open the collection, and send what it lacks; vectors are made only then."""
        with self._lock:
            if not self._ready and (n := len(self.corpus)):
                if self._words is not None:
                    self._words.build(store, progress)
                self._connect()
                held = self._look()
                if held > n:
                    raise self._refused(f"has {held} points for {n} passages")
                if held < n:
                    if self._dense is not None:
                        self._dense.build(store, progress)
                    self._fill(held, progress)
            self._ready = True
        return self

    def index_settings(self) -> dict[str, Any]:
        """What decides the collection, and where it is."""
        words = self._words.index_settings() if self._words is not None else {}
        return {**super().index_settings(), **words, "url": self._url}

    def facts(self) -> dict[str, Any]:
        """The engine that answers now, and where the collection is."""
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
        self._client = QdrantClient(
            url=self._url, transport=self.server.transport(), check_compatibility=False
        )
        with self._answers():
            engine = f"qdrant {self._client.info().version}"
        self._facts = {"engine": engine, "server": self._url, "collection": self._name}

    def _look(self) -> int:
        """How many points the collection has; -1 where there is none."""
        with self._answers():
            if not self._client.collection_exists(self._name):
                return -1
            vectors = self._client.get_collection(self._name).config.params.vectors
            known = isinstance(vectors, dict) and "vector" in vectors
            self._size = vectors["vector"].size if known else None
            count: int = self._client.count(self._name, exact=True).count
            return count

    def _create(self, size: int | None) -> None:
        from qdrant_client import models

        vectors = models.VectorParams(size=size or 1, distance=models.Distance.DOT)
        with self._answers():
            self._client.create_collection(
                self._name,
                vectors_config={} if size is None else {"vector": vectors},
                sparse_vectors_config={"words": models.SparseVectorParams()} if self._words else {},
            )

    def _fill(self, held: int, progress: Progress | None) -> None:
        """Send what is missing.

        Raises:
            DataError: the collection there has other vectors, or other points.
        """
        from qdrant_client import models

        n, dense, words = len(self.corpus), self._dense, self._words
        size = dense.vectors_of([0]).shape[1] if dense is not None else None
        if held < 0:
            try:
                self._create(size)
            except LMSetupError:  # somebody else made it meanwhile, or a first attempt did
                if self._look() < 0:
                    raise
            held = self._look()
        self._check_size(size)
        weights: Any = words.by_passage() if words is not None else None
        # The last batch may have been half written, and points may have been deleted since.
        for first in dict.fromkeys((max(0, held - BATCH), 0)):
            for start in range(first, n, BATCH):
                places = range(start, min(start + BATCH, n))
                rows = dense.vectors_of(places).tolist() if dense is not None else []
                points = []
                for i in places:
                    sides: dict[str, Any] = {"vector": rows[i - start]} if rows else {}
                    a, b = weights.indptr[i : i + 2] if weights is not None else (0, 0)
                    if a < b:
                        told = weights.indices[a:b].tolist(), weights.data[a:b].tolist()
                        sides["words"] = models.SparseVector(indices=told[0], values=told[1])
                    points.append(models.PointStruct(id=i, vector=sides))
                with self._answers():
                    self._client.upsert(self._name, points, wait=True)
                if progress:
                    progress(places.stop, n)
            held = self._look()
            if held == n:
                return
        raise self._refused(f"has {held} points after {n} were sent")

    def _find(self, asked: Sequence[Asked], depth: int) -> list[Found]:
        """At most `depth` points for each that is asked, best first.

        Raises:
            RagbenchError: the server fails, or its answer is of no use.
        """
        from qdrant_client import models

        # In memory all vectors are compared, and the client warns of what has no effect.
        ef = max(self.settings.ef_search, depth)
        walk = models.SearchParams(hnsw_ef=ef) if self.server is not None else None
        found: list[Found] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(asked)
        requests: dict[int, Any] = {}
        for i, one in enumerate(asked):
            if not isinstance(one, str):
                self._check_size(len(one))
                given = {"query": one.tolist(), "using": "vector", "params": walk}
            else:
                assert self._words is not None
                counts = sorted(Counter(self._words.terms(one).tolist()).items())
                if not counts:
                    continue
                places, values = zip(*counts, strict=True)
                words = models.SparseVector(indices=[*places], values=[float(v) for v in values])
                given = {"query": words, "using": "words"}
            requests[i] = models.QueryRequest(limit=depth, **given)
        known = list(requests)
        for start in range(0, len(known), _QUERIES_AT_ONCE):
            part = known[start : start + _QUERIES_AT_ONCE]
            with self._answers():
                answers = self._client.query_batch_points(self._name, [requests[i] for i in part])
                if len(answers) != len(part):
                    raise AssertionError(f"{len(answers)} rankings for {len(part)}")
                for i, answer in zip(part, answers, strict=True):
                    found[i] = _read(answer.points, len(self.corpus))
        return found

    def _check_size(self, size: int | None) -> None:
        """Do nothing where the vectors there have `size` numbers, else raise a DataError."""
        if self._size != size:
            mine, theirs = (f"{n} numbers" if n else "no numbers" for n in (size, self._size))
            raise self._refused(f"has vectors of {theirs}, and the embedder gives {mine}")

    def _refused(self, why: str) -> DataError:
        where = self.server.identity if self.server is not None else "memory"
        return DataError(
            f"collection {self._name} of {where} {why}; delete it there, and it is made again"
        )

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Let what the transport raised pass through the client, which wraps it.

        Raises:
            LMSetupError: the answer is not one of Qdrant's.
        """
        from pydantic import ValidationError
        from qdrant_client.http.exceptions import ResponseHandlingException

        try:
            yield
        except ResponseHandlingException as error:
            if not isinstance(error.source, ValidationError):
                raise error.source from None
            why = error.source.errors()[0]["msg"]
        except AssertionError as error:  # by which the client checks that there is a result
            why = str(error)
        else:
            return
        where = self.server.identity if self.server is not None else "memory"
        raise LMSetupError(
            f"{where} does not answer as Qdrant does: {why[:200]}; check its address"
        )


def _read(points: Any, n: int) -> Found:
    """Positions and scores of an answer."""
    places = [point.id for point in points]
    scores = [point.score for point in points]
    good = all(type(place) is int and 0 <= place < n for place in places)
    if not (good and len({*places}) == len(places) and all(map(math.isfinite, scores))):
        raise AssertionError(f"points that are none of {n} passages")
    return np.array(places, np.int64), np.array(scores, np.float32)
