"""Qdrant: words and vectors of the passages in a collection, on a server or in this process.

What a word weighs in a passage is BM25's weight, made here with the knobs of `bm25` and uploaded as
a sparse vector; a query is the sparse vector of its words' counts, so that their product is the
score of `bm25`. Statistics of the engine's own (`Modifier.IDF`) would be those of each shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from ragbench.lms import checked_address
from ragbench.retrievers.base import RETRIEVERS, Corpus, Progress
from ragbench.retrievers.bm25 import BM25Settings
from ragbench.retrievers.embedders import Vectors
from ragbench.retrievers.engines.base import Asked, Engine, EngineSettings, Found
from ragbench.retrievers.sparse.postings import (
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
    from ragbench.retrievers.engines.collection import Collection, Side
    from ragbench.retrievers.engines.server import SearchServer

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
        from ragbench.retrievers.engines.collection import Collection

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
