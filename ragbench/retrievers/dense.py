"""Dense retrieval: nearest vectors by inner product (faiss: Douze et al. 2024, arXiv:2401.08281).

All vectors have unit length, so a score is a cosine in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from ragbench.errors import LMSetupError, needs_extra
from ragbench.knobs import Knobs
from ragbench.ledger import open_ledger
from ragbench.passages import Corpus, Passage
from ragbench.record import Call, total
from ragbench.retrievers.base import RETRIEVERS, Hits, Progress, Ranking
from ragbench.retrievers.embedders import Embedder, Vectors, make_embedder
from ragbench.retrievers.scores import Found, whole_ties

#: Passages whose vectors are written at once. A smaller corpus needs no file.
_PART = 8192
#: With 20 queries or more, faiss uses BLAS, whose last digits differ from a single query's.
_QUERIES_AT_ONCE = 16
#: The most vectors that `auto` searches exactly.
_EXACT_TO = 100_000
#: Vectors added at once, so that those of a file are not all read into memory.
_ADDED_AT_ONCE = 65_536
#: Vectors per list that the lists are made from. Faiss needs 39.
_TRAINED_PER_LIST = 64
#: Lists read per search.
NPROBE = 64


class EmbeddingSettings(Knobs):
    """Parameters of the embedder and of the embedded text."""

    embedder: str = Field("local", description="local, local:NAME, fastembed/NAME or openai/MODEL")
    api_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    title: bool = Field(True, description="whether the title is put before the embedded text")
    query_prefix: str = Field("", description="put before each query, as some models ask")
    passage_prefix: str = Field("", description="put before each passage, as some models ask")


class DenseSettings(EmbeddingSettings):
    """Knobs of dense retrieval."""

    index: Literal["auto", "exact", "ivf"] = Field(
        "auto", description="auto: exact to 100,000 vectors, beyond it by lists (ivf)"
    )
    nprobe: int = Field(
        NPROBE, ge=1, le=65_536, description="lists of an ivf index read per search"
    )


@RETRIEVERS.register("dense")
class Dense(Ranking):
    """Search by the similarity of sentence vectors. Always finds `k` passages if there are."""

    name = "dense"
    Settings = DenseSettings
    is_stored = True
    index_version = 2

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        #: Calls for the index in this process, of no question.
        self.index_calls: list[Call] = []
        self._embedded: dict[int, Vectors] = {}
        self._index: Any = None  # faiss index, None if the corpus is empty

    @cached_property
    def embedder(self) -> Embedder:
        return make_embedder(self.settings.embedder, self.settings.api_base)

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        texts = queries
        if self.corpus.plain:
            texts = list(map(self.corpus.plain, queries))
        return self.embedder.embed([self.settings.query_prefix + text for text in texts])

    def vectors_of(self, positions: Sequence[int]) -> Vectors:
        """Return the vectors of the passages at `positions`, at least one."""
        with self._lock:
            if self._index is not None:
                vectors: Vectors = self._index.reconstruct_batch(np.asarray(positions, np.int64))
                return vectors
            missing = [i for i in dict.fromkeys(positions) if i not in self._embedded]
            if missing:
                self._embedded |= dict(zip(missing, self._embed(missing, None), strict=True))
            return np.stack([self._embedded[i] for i in positions])

    def restrict(self, positions: Sequence[int]) -> Self:
        """Return a dense retriever over some passages. Embed each passage once."""
        small = super().restrict(positions)
        if positions:
            small._index = make_index(self.vectors_of(positions), "exact")
        small._ready = True
        return small

    def prepare_restricted(self, store: Any, progress: Progress | None) -> None:
        """Embed the full corpus and store the vectors, if there is a store.

        Without a store, each passage is embedded when a question first needs it.
        """
        if store is not None:
            self.build(store, progress)

    def index_settings(self) -> dict[str, Any]:
        settings = self.settings.model_dump(include={"title", "passage_prefix"})
        if self.corpus.plain:
            settings["names"] = "plain"
        return {**settings, "embedder": self.embedder.identity, "index": self._kind}

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"embedder": self.embedder.identity, "vectors": self._kind}
        if self.index_calls:
            spent = total(self.index_calls)
            facts["embedding_tokens"] = spent.other_tokens
            facts["embedding_s"] = round(spent.latency_s, 3)
            facts["embedding_usd"] = spent.cost_usd
        return facts

    @property
    def _kind(self) -> str:
        return choose_kind(self.settings.index, len(self.corpus))

    def _hits(self, queries: Sequence[str], k: int) -> list[Hits]:
        return nearest(self._index, self.embed_queries(queries), k)

    def search_mean(self, texts: Sequence[str], *, k: int) -> list[Passage]:
        """Search by the mean of the vectors of `texts`.

        Args:
            texts: At least one text.
            k: Maximum number of passages.

        Returns:
            The nearest passages. A score is the mean cosine with `texts`, in [-1, 1].
        """
        self.build()
        phrases = list(filter(str.strip, texts))
        k = min(k, len(self.corpus))
        if k < 1 or not phrases:
            return []
        mean = self.embed_queries(phrases).mean(axis=0, keepdims=True)
        [hits] = nearest(self._index, mean, k)
        return [self.corpus[position].scored(score) for position, score in hits]

    def _make(self, progress: Progress | None) -> None:
        if len(self.corpus):
            rows = self._rows(progress)
            self._index = make_index(rows, self.settings.index, self.settings.nprobe)
            self._embedded.clear()

    def _save(self, folder: Path) -> None:
        if self._index is not None:
            import faiss

            try:
                faiss.write_index(self._index, str(folder / "vectors.faiss"))
            except RuntimeError as error:  # faiss raises it for any file error
                raise OSError(f"vectors.faiss: {error}") from error

    def _load(self, folder: Path) -> None:
        if len(self.corpus):
            with needs_extra("dense search"):
                import faiss
            index = faiss.read_index(str(folder / "vectors.faiss"), faiss.IO_FLAG_MMAP_IFC)
            self._index = _reading(index, self.settings.nprobe)

    def _rows(self, progress: Progress | None) -> Vectors:
        """Return all vectors, shape `(n, d)`. Embed many passages part by part.

        An interrupted build continues after its last part. With an embedding server, it starts
        again and finds the paid vectors in the embedder's cache.
        """
        n = len(self.corpus)
        folder = self._unfinished
        if folder is None or n <= _PART:
            return self._embed(range(n), progress)
        folder.mkdir(exist_ok=True)
        path = folder / "vectors.npy"
        mark = folder / "done.txt"
        can_resume = mark.exists() and self.embedder.in_process
        done = int(mark.read_text() or 0) if can_resume else 0
        rows: Any = np.load(path, mmap_mode="r+") if done else None

        def told(n_embedded: int, _: int, stage: str = "") -> None:
            if progress:
                progress(start + n_embedded, n, stage)

        for start in range(done, n, _PART):
            stop = min(start + _PART, n)
            vectors = self._embed(range(start, stop), told)
            if rows is None:
                shape = n, vectors.shape[1]
                rows = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=shape)
            rows[start:stop] = vectors
            rows.flush()
            mark.write_text(str(stop))
        vectors_made: Vectors = rows
        return vectors_made

    def _embed(self, positions: Sequence[int], progress: Progress | None) -> Vectors:
        with open_ledger() as ledger:
            vectors = self.embedder.embed(list(map(self._text, positions)), progress)
        self.index_calls += ledger.calls
        return vectors

    def _text(self, position: int) -> str:
        passage = self.corpus.passages[position]
        text = passage.text
        if self.settings.title:
            text = f"{passage.title} {text}"
        if self.corpus.plain:
            text = self.corpus.plain(text)
        return f"{self.settings.passage_prefix}{text}".strip()


def choose_kind(kind: str, n: int) -> str:
    """Return the kind of an index. `auto` selects it by size.

    Args:
        kind: `exact`, `ivf` or `auto`.
        n: Number of vectors.
    """
    if kind != "auto":
        return kind
    if n <= _EXACT_TO:
        return "exact"
    return "ivf"


def make_index(vectors: Vectors, kind: str, nprobe: int = NPROBE) -> Any:
    """Build a faiss index.

    Args:
        vectors: Vectors, shape (n, d) with n > 0. Vectors of a file are mapped.
        kind: `exact`, `ivf` or `auto`.
        nprobe: Number of lists that a search of an `ivf` index reads.
    """
    with needs_extra("dense search"):
        import faiss
    n, d = vectors.shape
    index: Any = faiss.IndexFlatIP(d)
    if choose_kind(kind, n) == "ivf":
        quantizer = index
        lists = max(1, min(int(4 * n**0.5), n // 39 or 1))
        numbers = faiss.ScalarQuantizer.QT_fp16
        inner = faiss.METRIC_INNER_PRODUCT
        index = faiss.IndexIVFScalarQuantizer(quantizer, d, lists, numbers, inner)
        index.own_fields = True
        quantizer.this.disown()
        size = min(n, _TRAINED_PER_LIST * lists)
        chosen = np.sort(np.random.default_rng(0).choice(n, size=size, replace=False))
        index.train(np.ascontiguousarray(vectors[chosen]))
    for start in range(0, n, _ADDED_AT_ONCE):
        index.add(np.ascontiguousarray(vectors[start : start + _ADDED_AT_ONCE]))
    return _reading(index, nprobe)


def _reading(index: Any, nprobe: int) -> Any:
    """Set the number of lists that a search of `index` reads, and return `index`."""
    if hasattr(index, "nprobe"):
        index.nprobe = min(nprobe, index.nlist)
        index.make_direct_map()  # `reconstruct` needs it
    return index


def nearest(index: Any, queries: Vectors, k: int) -> list[Hits]:
    """Find the `k` nearest vectors of each query, best first, ties in corpus order.

    Args:
        index: A faiss index.
        queries: Unit vectors, shape `(queries, d)`.
        k: Number of hits, at most the size of the index.

    Raises:
        LMSetupError: The vectors have another length than those of the index.
    """
    if queries.shape[1] != index.d:
        raise LMSetupError(
            f"the embedder answers with vectors of {queries.shape[1]} numbers, and those of the "
            f"index have {index.d}; has the server another model now?"
        )

    def find(rows: Sequence[int], depth: int) -> list[Found]:
        hits: list[Found] = []
        for start in range(0, len(rows), _QUERIES_AT_ONCE):
            batch = np.ascontiguousarray(queries[list(rows[start : start + _QUERIES_AT_ONCE])])
            scores, places = index.search(batch, depth)
            # An index by lists that has no more says -1.
            for p, s in zip(places, scores, strict=True):
                hits.append((p[p >= 0], s[p >= 0]))
        return hits

    return whole_ties(find, len(queries), k, index.ntotal)
