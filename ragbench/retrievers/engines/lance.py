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

from ragbench.errors import needs_extra
from ragbench.passages import Corpus
from ragbench.retrievers.base import RETRIEVERS, Progress
from ragbench.retrievers.embedders import clean
from ragbench.retrievers.engines.base import Asked, Engine
from ragbench.retrievers.scores import Found

_TABLE = "passages"
_ROWS_AT_ONCE = 8192
#: Up to this many vectors all are compared with a query; beyond, those of the nearest lists.
_EXACT_TO = 100_000
_LISTS_READ = 64


@RETRIEVERS.register("lancedb")
class Lance(Engine):
    """Search by words, by vectors or by both in a LanceDB table."""

    name = "lancedb"
    is_stored = True
    index_version = 2

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._table: Any = None  # None over an empty corpus
        self._remove: weakref.finalize[Any, Any] | None = None  # a table that is not stored

    def facts(self) -> dict[str, Any]:
        import lancedb

        return {"engine": f"lancedb {lancedb.__version__}"}

    def _find(self, asked: Sequence[Asked], depth: int) -> list[Found]:
        from lancedb.query import MatchQuery

        found: list[Found] = []
        for one in asked:
            if isinstance(one, str):
                search, score = self._table.search(MatchQuery(clean(one), "text")), "_score"
            else:
                search, score = self._table.search(one).distance_type("dot"), "_distance"
                search = search.nprobes(_LISTS_READ)
            table = search.select(["position", score]).limit(depth).to_arrow()
            scores = table[score].to_numpy()
            found.append(
                (table["position"].to_numpy(), scores if score == "_score" else 1 - scores)
            )
        return found

    def _make(self, progress: Progress | None) -> None:
        with needs_extra("retriever lancedb"):
            import lancedb
            import pyarrow
            from lancedb.index import FTS, IvfFlat
        if not (n := len(self.corpus)):
            return
        folder = tempfile.mkdtemp(prefix="ragbench-lancedb-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        fields = [("position", pyarrow.int32())]
        if self.settings.mode != "vector":
            fields.append(("text", pyarrow.string()))
        if self._dense is not None:
            size = self._dense.vectors_of([0]).shape[1]
            fields.append(("vector", pyarrow.list_(pyarrow.float32(), size)))
        schema = pyarrow.schema(fields)
        database = lancedb.connect(folder)
        self._table = database.create_table(_TABLE, self._batches(schema), schema=schema)
        if self.settings.mode != "vector":
            words = FTS(with_position=False, stem=False, ascii_folding=False, max_token_length=None)
            self._table.create_index("text", config=words)
        if self._dense is not None and n > _EXACT_TO:
            lists = IvfFlat(distance_type="dot", num_partitions=int(4 * n**0.5))
            self._table.create_index("vector", config=lists)

    def _batches(self, schema: Any) -> Iterator[Any]:
        import pyarrow

        for start in range(0, len(self.corpus), _ROWS_AT_ONCE):
            places = range(start, min(start + _ROWS_AT_ONCE, len(self.corpus)))
            columns: dict[str, Any] = {"position": pyarrow.array(places, pyarrow.int32())}
            if "text" in schema.names:
                passages = [self.corpus.passages[i] for i in places]
                titled = self.settings.title
                columns["text"] = [
                    clean(f"{p.title} {p.text}" if titled else p.text) for p in passages
                ]
            if self._dense is not None:
                rows = self._dense.vectors_of(places)
                flat = pyarrow.array(rows.ravel())
                columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
            yield pyarrow.record_batch(columns, schema=schema)

    def _save(self, folder: Path) -> None:
        if self._table is not None and self._remove is not None:
            shutil.move(Path(self._table.uri), folder)
            self._remove()

    def _load(self, folder: Path) -> None:
        with needs_extra("retriever lancedb"):
            import lancedb
        if n := len(self.corpus):
            self._table = lancedb.connect(folder).open_table(_TABLE)
            if (held := self._table.count_rows()) != n:
                raise ValueError(f"the table has {held} rows for {n} passages")
