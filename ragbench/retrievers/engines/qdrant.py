"""Qdrant: words and vectors of the passages in a collection, on a server or in this process.

What a word weighs in a passage is BM25's weight, made here by `bm25` and uploaded as a sparse
vector; a query is the sparse vector of its words' counts, so that their product is the score of
`bm25`. Statistics of the engine's own (`Modifier.IDF`) would be those of each shard.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Self

import numpy as np
from pydantic import Field

from ragbench.errors import DataError, LMSetupError, needs_extra
from ragbench.lms import checked_address
from ragbench.retrievers.base import RETRIEVERS, Corpus, Progress
from ragbench.retrievers.bm25 import BM25, BM25Settings
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.engines.base import Asked, Engine, EngineSettings
from ragbench.retrievers.engines.server import SearchServer
from ragbench.retrievers.scores import Found
from ragbench.retrievers.store import index_key

#: A vector, or the weights of words by their places, ascending.
Side = Vectors | Mapping[int, float]

#: Points sent at once: 256 vectors of 1,536 numbers are 8 MB of JSON; a server takes 32.
BATCH = 256
#: Rankings asked for at once.
_QUERIES_AT_ONCE = 64
#: From here on the vendor advises against memory.
_MEMORY_TO = 20_000
KEY_VARIABLE = "QDRANT_API_KEY"

log = logging.getLogger(__name__)


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
        self._collection: Collection | None = None  # None over an empty corpus
        self.server = None
        if self._url:
            self.server = SearchServer("qdrant", self._url, header="api-key", variable=KEY_VARIABLE)

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
                name = index_key(self, without="url").replace(self.name, "ragbench")
                self._collection = collection = Collection(name, self.server, self._url)
                if collection.held > n:
                    raise collection.refused(f"has {collection.held} points for {n} passages")
                if collection.held < n:
                    if self._dense is not None:
                        self._dense.build(store, progress)
                    self._fill(collection, progress)
            self._ready = True
        return self

    def index_settings(self) -> dict[str, Any]:
        """What decides the collection, and where it is."""
        words = self._words.index_settings() if self._words is not None else {}
        return {**super().index_settings(), **words, "url": self._url}

    def facts(self) -> dict[str, Any]:
        """The engine that answers now, and where the collection is."""
        if self._collection is None:
            return {}
        facts = {"engine": self._collection.engine}
        if self._url:
            facts |= {"server": self._url, "collection": self._collection.name}
        return facts

    def _find(self, asked: Sequence[Asked], depth: int) -> list[Found]:
        assert self._collection is not None
        sides: list[Side] = []
        for one in asked:
            if isinstance(one, str):
                assert self._words is not None
                counts = Counter(self._words.terms(one).tolist())
                sides.append(dict(sorted(counts.items())))
            else:
                sides.append(one)
        return self._collection.find(sides, depth, len(self.corpus), ef=self.settings.ef_search)

    def _fill(self, collection: Collection, progress: Progress | None) -> None:
        """Send what is missing.

        Raises:
            DataError: the collection there has other vectors, or other points.
        """
        n, dense, words = len(self.corpus), self._dense, self._words
        size = dense.vectors_of([0]).shape[1] if dense is not None else None
        if not collection.exists:
            collection.create(size, words=words is not None)
        collection.check(size)
        if not self._url and n > _MEMORY_TO:
            log.warning(
                "qdrant compares a query with all of %d passages in memory; beyond %d give the "
                "address of a server (url=)", n, _MEMORY_TO,
            )  # fmt: skip
        weights: Any = words.by_passage() if words is not None else None
        # The last batch may have been half written, and points may have been deleted since.
        for first in dict.fromkeys((max(0, collection.held - BATCH), 0)):
            for start in range(first, n, BATCH):
                places = range(start, min(start + BATCH, n))
                points: dict[int, dict[str, Side]] = {i: {} for i in places}
                if dense is not None:
                    for i, row in zip(places, dense.vectors_of(places), strict=True):
                        points[i]["vector"] = row
                for i in places if weights is not None else ():
                    held = slice(weights.indptr[i], weights.indptr[i + 1])
                    told = weights.indices[held].tolist(), weights.data[held].tolist()
                    points[i]["words"] = dict(zip(*told, strict=True))
                collection.send(points)
                if progress:
                    progress(places.stop, n)
            collection.look()
            if collection.held == n:
                return
        raise collection.refused(f"has {collection.held} points after {n} were sent")


class Collection:
    """The collection `name` at `url` through `server`, or in memory without one. Thread-safe.

    It has `held` points of `size` numbers, None without vectors.

    Raises:
        MissingExtraError: the client is not installed.
        RagbenchError: the server is not there, or refuses the key.
    """

    held: int
    size: int | None
    exists: bool

    def __init__(self, name: str, server: SearchServer | None, url: str) -> None:
        with needs_extra("retriever qdrant"):
            from qdrant_client import QdrantClient
        self.name, self._is_remote = name, server is not None
        if server is None:
            self._where, self._client = "memory", QdrantClient(":memory:")
            self.engine = f"qdrant-client {version('qdrant-client')} in memory"
        else:
            # Its transport adds the key. The check would be a thread that warns.
            self._where, transport = server.identity, server.transport()
            self._client = QdrantClient(url=url, transport=transport, check_compatibility=False)
            with self._answers():
                self.engine = f"qdrant {self._client.info().version}"
        self.look()

    def look(self) -> None:
        """See what there is."""
        self.held, self.size = 0, None
        with self._answers():
            self.exists = self._client.collection_exists(self.name)
            if self.exists:
                params = self._client.get_collection(self.name).config.params
                vectors = params.vectors if isinstance(params.vectors, dict) else {}
                self.size = vectors["vector"].size if "vector" in vectors else None
                self.held = self._client.count(self.name, exact=True).count

    def create(self, size: int | None, *, words: bool) -> None:
        """Make it, for vectors of `size` numbers, for `words`, or for both."""
        from qdrant_client import models

        vectors, sparse = {}, {}
        if size is not None:
            vectors["vector"] = models.VectorParams(size=size, distance=models.Distance.DOT)
        if words:
            sparse["words"] = models.SparseVectorParams()
        try:
            with self._answers():
                self._client.create_collection(
                    self.name, vectors_config=vectors, sparse_vectors_config=sparse
                )
        except LMSetupError:  # somebody else made it meanwhile, or a first attempt did
            self.look()
            if not self.exists:
                raise
        self.look()

    def check(self, size: int | None) -> None:
        """Do nothing where its vectors have `size` numbers.

        Raises:
            DataError: they have not.
        """
        if self.size != size:
            mine, theirs = (f"{n} numbers" if n else "no numbers" for n in (size, self.size))
            raise self.refused(f"has vectors of {theirs}, and the embedder gives {mine}")

    def send(self, points: Mapping[int, Mapping[str, Side]]) -> None:
        """Put `points` there, by position."""
        from qdrant_client import models

        made = [
            models.PointStruct(
                id=i, vector={name: _sent(side) for name, side in sides.items() if len(side)}
            )
            for i, sides in points.items()
        ]
        with self._answers(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of many points in memory: told before
            self._client.upsert(self.name, made, wait=True)

    def find(self, asked: Sequence[Side], depth: int, n: int, *, ef: int) -> list[Found]:
        """At most `depth` of `n` points for each side that is asked, best first.

        Raises:
            RagbenchError: the server fails, or its answer is of no use.
        """
        from qdrant_client import models

        # In memory all vectors are compared, and the client warns of what has no effect.
        walk = models.SearchParams(hnsw_ef=max(ef, depth)) if self._is_remote else None
        found: list[Found] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(asked)
        known = [i for i, side in enumerate(asked) if len(side)]
        for start in range(0, len(known), _QUERIES_AT_ONCE):
            part = known[start : start + _QUERIES_AT_ONCE]
            requests = []
            for side in (asked[i] for i in part):
                words = isinstance(side, Mapping)
                if not words:
                    self.check(len(side))
                requests.append(
                    models.QueryRequest(
                        query=_sent(side),
                        using="words" if words else "vector",
                        limit=depth,
                        params=None if words else walk,
                    )
                )
            with self._answers():
                answers = self._client.query_batch_points(self.name, requests)
                if len(answers) != len(part):
                    raise AssertionError(f"{len(answers)} rankings for {len(part)}")
                for i, answer in zip(part, answers, strict=True):
                    found[i] = _read(answer.points, n)
        return found

    def refused(self, why: str) -> DataError:
        """The error of a collection that cannot be used."""
        return DataError(
            f"collection {self.name} of {self._where} {why}; delete it there, and it is made again"
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
        raise LMSetupError(
            f"{self._where} does not answer as Qdrant does: {why[:200]}; check its address"
        )


def _sent(side: Side) -> Any:
    from qdrant_client import models

    if isinstance(side, Mapping):
        return models.SparseVector(indices=[*side], values=[float(v) for v in side.values()])
    return side.tolist()


def _read(points: Any, n: int) -> Found:
    """Positions and scores of an answer."""
    places = [point.id for point in points]
    scores = [point.score for point in points]
    good = all(type(place) is int and 0 <= place < n for place in places)
    if not (good and len({*places}) == len(places) and all(map(math.isfinite, scores))):
        raise AssertionError(f"points that are none of {n} passages")
    return np.array(places, np.int64), np.array(scores, np.float32)
