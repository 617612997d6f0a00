"""LanceDB: words and vectors of the passages in one table on disk, searched by either or by both.

The engine works in this process and reads from the table what a search needs. Its BM25 has
k1 = 1.2 and b = 0.75, words without stemming, and leaves out English stop words.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ragbench.errors import needs_extra
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Progress
from ragbench.retrievers.embedders import Vectors, clean
from ragbench.retrievers.engines.base import Asked, Engine, EngineSettings, Found

_TABLE = "passages"
_ROWS_AT_ONCE = 8192
#: Up to this many vectors all are compared with a query; beyond, those of the nearest lists.
_EXACT_TO = 100_000


class LanceSettings(EngineSettings):
    """Knobs of LanceDB."""

    nprobe: int = Field(64, ge=1, le=65_536, description="lists of vectors read per search")


@RETRIEVERS.register("lancedb")
class Lance(Engine):
    """Search by words, by vectors or by both in a LanceDB table."""

    name = "lancedb"
    Settings = LanceSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._table: Any = None  # None over an empty corpus
        self._remove: weakref.finalize[Any, Any] | None = None  # a table that is not stored

    def restrict(self, positions: Sequence[int]) -> Lance:
        """A table of its own over the passages at `positions`, whose vectors are made again."""
        return type(self)(self.corpus.subset(positions), **self.settings.model_dump())

    def facts(self) -> dict[str, Any]:
        """The engine's version, and what embedding the passages took."""
        import lancedb

        return {**super().facts(), "engine": f"lancedb {lancedb.__version__}"}

    def _find(self, asked: Sequence[tuple[Asked, int]]) -> list[Found]:
        return [
            self._by_words(one, depth) if isinstance(one, str) else self._by_vector(one, depth)
            for one, depth in asked
        ]

    def _by_words(self, query: str, depth: int) -> Found:
        from lancedb.query import MatchQuery

        asked = self._table.search(MatchQuery(clean(query), "text"))
        table = asked.select(["position", "_score"]).limit(depth).to_arrow()
        return table["position"].to_numpy(), table["_score"].to_numpy()

    def _by_vector(self, row: Vectors, depth: int) -> Found:
        asked = self._table.search(row).distance_type("dot").nprobes(self.settings.nprobe)
        table = asked.select(["position", "_distance"]).limit(depth).to_arrow()
        return table["position"].to_numpy(), 1 - table["_distance"].to_numpy()

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
