"""LanceDB: words and vectors of the passages in one table on disk, searched by either or by both.

The engine works in this process and reads from the table what a search needs. Its BM25 has
k1 = 1.2 and b = 0.75, words without stemming, and leaves out English stop words. Both rankings are
fused by reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009), as in `hybrid`.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.errors import needs_extra
from ragbench.record import Call
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Progress, Retriever
from ragbench.retrievers.dense import Dense, EmbeddingSettings
from ragbench.retrievers.embedders import Vectors, clean
from ragbench.retrievers.topk import Hits

#: Positions and scores of at most so many passages, best first, ties in any order.
_Search = Callable[[int], tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]

_TABLE = "passages"
_ROWS_AT_ONCE = 8192
#: Up to this many vectors all are compared with a query; beyond, those of the nearest lists.
_EXACT_TO = 100_000


class LanceSettings(EmbeddingSettings):
    """Knobs of LanceDB."""

    mode: Literal["hybrid", "text", "vector"] = Field(
        "hybrid", description="what is searched: words, vectors, or both"
    )
    rrf_k: float = Field(60, gt=0, le=10_000, description="evens out the ranks; smaller is steeper")
    dense_weight: float = Field(
        0.5, ge=0, le=1, description="weight of the vectors; the words have the rest"
    )
    depth: int = Field(2, ge=1, le=100, description="each side is asked for this many times k")
    nprobe: int = Field(64, ge=1, le=65_536, description="lists of vectors read per search")


@RETRIEVERS.register("lancedb")
class Lance(Retriever):
    """Search by words, by vectors or by both in a LanceDB table."""

    name = "lancedb"
    Settings = LanceSettings
    is_stored = True

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        shared = self.settings.model_dump(include={*EmbeddingSettings.model_fields})
        self._dense = Dense(corpus, **shared)
        self._table: Any = None  # None over an empty corpus
        self._remove: weakref.finalize[Any, Any] | None = None  # a table that is not stored

    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages, best first."""
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; the queries are embedded together."""
        self.build()
        k = min(k, len(self.corpus))
        asked = [query for query in dict.fromkeys(queries) if query.strip()]
        if k < 1 or not asked:
            return [[] for _ in queries]
        rows: Any = [None] * len(asked)
        if self.settings.mode != "text":
            rows = self._dense.embed_queries(asked)
        hits_of = {query: self._hits(query, row, k) for query, row in zip(asked, rows, strict=True)}
        return [
            [self.corpus.passages[i].scored(score) for i, score in hits_of.get(query, [])]
            for query in queries
        ]

    def restrict(self, positions: Sequence[int]) -> Lance:
        """A table of its own over the passages at `positions`, whose vectors are made again."""
        return type(self)(self.corpus.subset(positions), **self.settings.model_dump())

    def index_settings(self) -> dict[str, Any]:
        """What decides the table: the vectors, and whether there are words, vectors or both."""
        vectors = self._dense.index_settings() if self.settings.mode != "text" else {}
        return {**vectors, "mode": self.settings.mode, "title": self.settings.title}

    def facts(self) -> dict[str, Any]:
        """The engine's version, and what embedding the passages took."""
        import lancedb

        embedding = self._dense.facts() if self.settings.mode != "text" else {}
        return {**embedding, "engine": f"lancedb {lancedb.__version__}"}

    @property
    def index_calls(self) -> list[Call]:
        """The calls that embedding passages has taken in this process; no question's."""
        return self._dense.index_calls

    def _hits(self, query: str, row: Any, k: int) -> Hits:
        settings, n = self.settings, len(self.corpus)
        depth = min(n, k * settings.depth) if settings.mode == "hybrid" else k
        sides: list[tuple[float, Hits]] = []
        if settings.mode != "vector":
            hits = _best(self._by_words(clean(query)), depth, n)
            sides.append((1 - settings.dense_weight, hits))
        if settings.mode != "text":
            sides.append((settings.dense_weight, _best(self._by_vector(row), depth, n)))
        if len(sides) == 1:
            return sides[0][1]
        fused: dict[int, float] = {}
        for weight, hits in sides:
            for rank, (place, _) in enumerate(hits if weight else [], start=1):
                fused[place] = fused.get(place, 0.0) + weight / (settings.rrf_k + rank)
        return sorted(fused.items(), key=lambda hit: (-hit[1], hit[0]))[:k]

    def _by_words(self, query: str) -> _Search:
        from lancedb.query import MatchQuery

        def search(depth: int) -> Any:
            asked = self._table.search(MatchQuery(query, "text"))
            table = asked.select(["position", "_score"]).limit(depth).to_arrow()
            return table["position"].to_numpy(), table["_score"].to_numpy()

        return search

    def _by_vector(self, row: Vectors) -> _Search:
        def search(depth: int) -> Any:
            asked = self._table.search(row).distance_type("dot").nprobes(self.settings.nprobe)
            table = asked.select(["position", "_distance"]).limit(depth).to_arrow()
            return table["position"].to_numpy(), 1 - table["_distance"].to_numpy()

        return search

    def _make(self, progress: Progress | None) -> None:
        if len(self.corpus):
            folder = tempfile.mkdtemp(prefix="ragbench-lancedb-")
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._fill(folder, progress)

    def _fill(self, folder: str, progress: Progress | None) -> None:
        with needs_extra("retriever lancedb"):
            import lancedb
            import pyarrow
            from lancedb.index import FTS, IvfFlat
        fields = [("position", pyarrow.int32())]
        rows: Vectors | None = None
        if self.settings.mode != "vector":
            fields.append(("text", pyarrow.string()))
        if self.settings.mode != "text":
            rows = self._dense.passage_vectors(self._unfinished, progress)
            fields.append(("vector", pyarrow.list_(pyarrow.float32(), rows.shape[1])))
        schema = pyarrow.schema(fields)
        batches = self._batches(schema, rows)
        self._table = lancedb.connect(folder).create_table(_TABLE, batches, schema=schema)
        if self.settings.mode != "vector":
            words = FTS(with_position=False, stem=False, ascii_folding=False, max_token_length=None)
            self._table.create_index("text", config=words)
        if rows is not None and len(rows) > _EXACT_TO:
            lists = IvfFlat(distance_type="dot", num_partitions=int(4 * len(rows) ** 0.5))
            self._table.create_index("vector", config=lists)

    def _batches(self, schema: Any, rows: Vectors | None) -> Iterator[Any]:
        import pyarrow

        for start in range(0, len(self.corpus), _ROWS_AT_ONCE):
            places = range(start, min(start + _ROWS_AT_ONCE, len(self.corpus)))
            columns: dict[str, Any] = {"position": pyarrow.array(places, pyarrow.int32())}
            if "text" in schema.names:
                passages = (self.corpus.passages[i] for i in places)
                columns["text"] = [clean(self._text(passage)) for passage in passages]
            if rows is not None:
                flat = pyarrow.array(np.asarray(rows[start : places.stop]).ravel())
                columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
            yield pyarrow.record_batch(columns, schema=schema)

    def _text(self, passage: Passage) -> str:
        return f"{passage.title} {passage.text}" if self.settings.title else passage.text

    def _save(self, folder: Path) -> None:
        if self._table is not None and self._remove is not None:
            shutil.move(Path(self._table.uri), folder)
            self._remove()

    def _load(self, folder: Path) -> None:
        with needs_extra("retriever lancedb"):
            import lancedb
        if len(self.corpus):
            self._table = lancedb.connect(folder).open_table(_TABLE)

    def _check(self) -> None:
        held = 0 if self._table is None else self._table.count_rows()
        if held != len(self.corpus):
            raise ValueError(f"the table has {held} rows for {len(self.corpus)} passages")


def _best(search: _Search, k: int, n: int) -> Hits:
    """The `k` best of `n`, ties in corpus order: looks deeper until a tie at the end is whole."""
    depth = min(n, k + 8)
    places, scores = search(depth)
    while len(places) == depth < n and scores[-1] == scores[k - 1]:
        depth = min(n, 8 * depth)
        places, scores = search(depth)
    order = np.lexsort((places, -scores))[:k]
    return list(zip(places[order].tolist(), scores[order].tolist(), strict=True))
