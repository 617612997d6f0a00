"""Qdrant: words and vectors of the passages in a collection, on a server or in this process.

What a word weighs in a passage is BM25's weight, made here with the knobs of `bm25` and uploaded as
a sparse vector; a query is the sparse vector of its words' counts, so that their product is the
score of `bm25`. Statistics of the engine's own (`Modifier.IDF`) would be those of each shard.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from ragbench.errors import DataError, LMSetupError, needs_extra
from ragbench.lms import checked_address
from ragbench.retrievers.base import RETRIEVERS, Corpus, Progress
from ragbench.retrievers.bm25 import BM25Settings
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.engines.base import Asked, Engine, EngineSettings, Found
from ragbench.retrievers.postings import (
    WORDS,
    Postings,
    Weighting,
    load_words,
    make_postings,
    save_words,
)
from ragbench.retrievers.store import index_key
from ragbench.retrievers.text import Words

if TYPE_CHECKING:
    from qdrant_client.models import QueryRequest

    from ragbench.retrievers.engines.server import SearchServer


#: A vector, or the weights of words by their places, ascending.
Side = Vectors | Mapping[int, float]
#: Gives the sides of the passages from one position to another, by name.
Sides = Callable[[int, int], Iterable[Mapping[str, Side]]]

#: Points sent at once: 256 vectors of 1,536 numbers are 8 MB of JSON; a server takes 32.
BATCH = 256
#: Rankings asked for at once.
_QUERIES_AT_ONCE = 64
#: From here on the vendor advises against memory.
_MEMORY_TO = 20_000

log = logging.getLogger(__name__)


class Collection:
    """The collection `name` at `url` through `server`, or in memory without one. Thread-safe.

    Raises:
        MissingExtraError: the client is not installed.
        RagbenchError: the server is not there, or refuses the key.
    """

    def __init__(self, name: str, server: SearchServer | None, url: str) -> None:
        with needs_extra("retriever qdrant"):
            from qdrant_client import QdrantClient
        self.name, self._server, self._url = name, server, url
        self._is_remote = server is not None
        self._where = "memory" if server is None else server.identity
        if server is None:
            self._client = QdrantClient(":memory:")
        else:
            # Its transport adds the key. The check would be a thread that warns.
            self._client = QdrantClient(
                url=url, transport=server.transport(), check_compatibility=False
            )
        self.engine = f"qdrant-client {version('qdrant-client')} in memory"
        if server is not None:
            with self._answers():
                self.engine = f"qdrant {self._client.info().version}"
        self._look()

    def __reduce__(self) -> Any:
        """Another process opens a server's collection by itself; one in memory goes as it is."""
        if self._is_remote:
            return Collection, (self.name, self._server, self._url)
        return super().__reduce__()

    def _look(self) -> None:
        """See what there is: `held` points of `size` numbers, None without vectors."""
        self.held, self.size, self.exists = 0, None, False
        with self._answers():
            self.exists = self._client.collection_exists(self.name)
            if self.exists:
                params = self._client.get_collection(self.name).config.params
                vectors = params.vectors if isinstance(params.vectors, dict) else {}
                self.size = vectors["vector"].size if "vector" in vectors else None
                self.held = self._client.count(self.name, exact=True).count

    def lacks(self, n: int) -> bool:
        """Whether some of `n` points are missing.

        Raises:
            DataError: there are more.
        """
        if self.held > n:
            raise self._refused(f"has {self.held} points for {n} passages")
        return self.held < n

    def fill(
        self, n: int, sides: Sides, size: int | None, *, words: bool, progress: Progress | None
    ) -> None:
        """Send what is missing of `n` points, with vectors of `size` numbers, with `words` or both.

        Raises:
            DataError: the collection there has other vectors, or other points.
        """
        if not self.exists:
            self._create(size, words=words)
        self.check(size)
        if not self._is_remote and n > _MEMORY_TO:
            log.warning(
                "qdrant compares a query with all of %d passages in memory; beyond %d give the "
                "address of a server (url=)", n, _MEMORY_TO,
            )  # fmt: skip
        # The last batch may have been half written, and points may have been deleted since.
        for start in dict.fromkeys((max(0, self.held - BATCH), 0)):
            self._send(range(start, n), sides, n, progress)
            self._look()
            if self.held == n:
                return
        raise self._refused(f"has {self.held} points after {n} were sent")

    def check(self, size: int | None) -> None:
        """Do nothing where the collection's vectors have `size` numbers.

        Raises:
            DataError: they have not.
        """
        if self.size != size:
            mine, theirs = (f"{n} numbers" if n else "no numbers" for n in (size, self.size))
            raise self._refused(f"has vectors of {theirs}, and the embedder gives {mine}")

    def find(self, asked: Sequence[tuple[Side, int]], n: int, *, ef: int) -> list[Found]:
        """At most so many of `n` points for each side that is asked, best first.

        Raises:
            RagbenchError: the server fails, or its answer is of no use.
        """
        nothing = np.empty(0, np.int64), np.empty(0, np.float32)
        found: list[Found] = [nothing] * len(asked)
        known = [i for i, (side, _) in enumerate(asked) if len(side)]
        for start in range(0, len(known), _QUERIES_AT_ONCE):
            part = known[start : start + _QUERIES_AT_ONCE]
            requests = [self._request(*asked[i], ef) for i in part]
            with self._answers():
                answers = self._client.query_batch_points(self.name, requests)
                if len(answers) != len(part):
                    raise AssertionError(f"{len(answers)} rankings for {len(part)}")
                for i, answer in zip(part, answers, strict=True):
                    found[i] = _read(answer.points, n)
        return found

    def _request(self, side: Side, depth: int, ef: int) -> QueryRequest:
        from qdrant_client import models

        if isinstance(side, Mapping):
            return models.QueryRequest(query=_sent(side), using="words", limit=depth)
        self.check(len(side))
        # In memory all vectors are compared, and the client warns of what has no effect.
        walk = models.SearchParams(hnsw_ef=max(ef, depth)) if self._is_remote else None
        return models.QueryRequest(query=_sent(side), using="vector", limit=depth, params=walk)

    def _create(self, size: int | None, *, words: bool) -> None:
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
            self._look()
            if not self.exists:
                raise
        self._look()

    def _send(self, positions: range, sides: Sides, n: int, progress: Progress | None) -> None:
        from qdrant_client import models

        for start in range(positions.start, n, BATCH):
            stop = min(start + BATCH, n)
            points = [
                models.PointStruct(
                    id=i, vector={name: _sent(side) for name, side in named.items() if len(side)}
                )
                for i, named in enumerate(sides(start, stop), start)
            ]
            with self._answers(), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of many points in memory: see `fill`
                self._client.upsert(self.name, points, wait=True)
            if progress:
                progress(stop, n)

    def _refused(self, why: str) -> DataError:
        cure = "delete it there" if self._is_remote else "drop its index (ragbench index drop)"
        return DataError(
            f"collection {self.name} of {self._where} {why}; {cure}, and it is made again"
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
            raise self._useless(error.source.errors()[0]["msg"]) from None
        except AssertionError as error:  # by which the client checks that there is a result
            raise self._useless(str(error)) from None

    def _useless(self, why: str) -> LMSetupError:
        return LMSetupError(
            f"{self._where} does not answer as Qdrant does: {why[:200]}; check its address"
        )


def _sent(side: Side) -> Any:
    from qdrant_client import models

    if isinstance(side, Mapping):
        return models.SparseVector(indices=[*side], values=[float(v) for v in side.values()])
    return side.tolist()


def _read(points: Any, n: int) -> Found:
    """Positions and scores of an answer, those that share nothing left out."""
    places = [point.id for point in points]
    scores = [point.score for point in points]
    good = all(type(place) is int and 0 <= place < n for place in places)
    if not (good and len({*places}) == len(places) and all(map(math.isfinite, scores))):
        raise AssertionError(f"points that are none of {n} passages")
    return np.array(places, np.int64), np.array(scores, np.float32)


KEY_VARIABLE = "QDRANT_API_KEY"
_VECTORS = "vectors.npy"


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

    On a server the index store keeps the vocabulary alone, in this process also what the collection
    is filled with: the engine's own files are pickles that one process at a time can open.
    """

    name = "qdrant"
    Settings = QdrantSettings
    _deepest = 100_000

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._url = checked_address(self.settings.url, "url")
        self._cut = Words(self.settings)
        self._places: Mapping[str, int] = {}  # of the words
        self._collection: Collection | None = None  # None over an empty corpus
        self._rows: Vectors | None = None  # these two until they are saved
        self._postings: Postings | None = None
        self.server = self._make_server() if self._url else None

    def restrict(self, positions: Sequence[int]) -> Qdrant:
        """A collection in this process over the passages at `positions`, embedded again."""
        settings = {**self.settings.model_dump(), "url": ""}
        return type(self)(self.corpus.subset(positions), **settings)

    def index_settings(self) -> dict[str, Any]:
        """What decides the collection, and where it is."""
        words = {}
        if self.settings.mode != "vector":
            words = self.settings.model_dump(mode="json", include={*BM25Settings.model_fields})
        return {**super().index_settings(), **words, "url": self._url}

    def facts(self) -> dict[str, Any]:
        """The engine's version, where the collection is, and what embedding the passages took."""
        facts = super().facts()
        if self._collection is not None:
            facts["engine"] = self._collection.engine
            if self._url:
                facts |= {"server": self._url, "collection": self._collection.name}
        return facts

    def card(self) -> dict[str, Any]:
        """As of every retriever; the engine is the one that answers now."""
        card = super().card()
        if self._collection is not None:
            card["index"]["engine"] = self._collection.engine
        return card

    def _make_server(self) -> SearchServer:
        from ragbench.retrievers.engines.server import SearchServer

        return SearchServer("qdrant", self._url, header="api-key", variable=KEY_VARIABLE)

    def _find(self, asked: Sequence[tuple[Asked, int]]) -> list[Found]:
        assert self._collection is not None
        sides = [(self._side(one), depth) for one, depth in asked]
        return self._collection.find(sides, len(self.corpus), ef=self.settings.ef_search)

    def _side(self, one: Asked) -> Side:
        """What is sent for a query: its vector, or its words' places and counts."""
        if not isinstance(one, str):
            return one
        counts = Counter(self._places[word] for word in self._cut(one) if word in self._places)
        return dict(sorted(counts.items()))

    def _make(self, progress: Progress | None) -> None:
        if not len(self.corpus):
            return
        collection = self._open()
        postings, rows = self._make_words(), None
        if collection.lacks(len(self.corpus)):
            if self.settings.mode != "text":
                rows = self._dense.passage_vectors(self._unfinished, progress)
            self._fill(collection, rows, postings, progress)
        if self._unfinished is not None:
            self._rows, self._postings = rows, postings

    def _open(self) -> Collection:
        name = index_key(self, without=("url",)).replace(self.name, "ragbench")
        self._collection = Collection(name, self.server, self._url)
        return self._collection

    def _make_words(self) -> Postings | None:
        settings = self.settings
        if settings.mode == "vector":
            return None
        texts = (self._cut.of_passage(passage) for passage in self.corpus.passages)
        postings = make_postings(texts, Weighting(settings.k1, settings.b, settings.idf))
        self._places = postings.words if postings is not None else {}
        return postings

    def _fill(
        self,
        collection: Collection,
        rows: Vectors | None,
        postings: Postings | None,
        progress: Progress | None,
    ) -> None:
        n = len(self.corpus)
        weights = None if postings is None else postings.by_passage(n)

        def sides(start: int, stop: int) -> Iterator[dict[str, Side]]:
            for i in range(start, stop):
                found: dict[str, Side] = {}
                if rows is not None:
                    found["vector"] = rows[i]
                if weights is not None:
                    held = slice(weights.indptr[i], weights.indptr[i + 1])
                    pairs = zip(
                        weights.indices[held].tolist(), weights.data[held].tolist(), strict=True
                    )
                    found["words"] = dict(pairs)
                yield found

        size = None if rows is None else rows.shape[1]
        collection.fill(n, sides, size, words=self.settings.mode != "vector", progress=progress)

    def _save(self, folder: Path) -> None:
        if self._url:
            if self._places:
                save_words(folder, self._places)
        else:
            if self._rows is not None:
                np.save(folder / _VECTORS, self._rows)
            if self._postings is not None:
                self._postings.save(folder)
        self._rows = self._postings = None

    def _load(self, folder: Path) -> None:
        n = len(self.corpus)
        if not n:
            return
        collection = self._collection or self._open()
        if self._url:
            if collection.held != n:
                raise ValueError(f"its collection {collection.name} has {collection.held} points")
            self._places = load_words(folder) if (folder / WORDS).exists() else {}
        elif collection.held != n:
            rows = np.load(folder / _VECTORS) if self.settings.mode != "text" else None
            postings = Postings.load(folder) if (folder / WORDS).exists() else None
            if rows is not None and len(rows) != n:
                raise ValueError(f"there are {len(rows)} vectors for {n} passages")
            if postings is not None:
                postings.check(n)
                self._places = postings.words
            self._fill(collection, rows, postings, None)
