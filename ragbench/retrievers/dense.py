"""Dense retrieval: nearest vectors by inner product (faiss: Douze et al. 2024, arXiv:2401.08281).

All vectors have unit length, so a score is a cosine in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.ledger import open_ledger
from ragbench.record import Call
from ragbench.retrievers import vectors
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Progress, Retriever, Store
from ragbench.retrievers.embedders import Embedder, Vectors, make_embedder
from ragbench.retrievers.scores import Hits, top
from ragbench.retrievers.vectors import Rows


class EmbeddingSettings(Knobs):
    """Knobs of what is embedded, and by what."""

    embedder: str = Field("local", description="local, local:NAME, openai/MODEL or st:NAME")
    api_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    title: bool = Field(True, description="whether the title is put before the embedded text")
    query_prefix: str = Field("", description="put before each query, as some models ask")
    passage_prefix: str = Field("", description="put before each passage, as some models ask")


class DenseSettings(EmbeddingSettings):
    """Knobs of dense retrieval."""

    index: Literal["auto", "exact", "fp16", "sq8", "ivf", "ivf_sq8", "hnsw"] = Field(
        "auto",
        description="auto: exact to 100,000 vectors, fp16 to 200,000, ivf to 2 million, ivf_sq8",
    )
    nprobe: int = Field(64, ge=1, le=65_536, description="lists of an ivf index read per search")
    ef_search: int = Field(128, ge=1, le=65_536, description="candidates of an hnsw search")


@RETRIEVERS.register("dense")
class Dense(Retriever):
    """Search by the similarity of sentence vectors; always finds `k` passages if there are."""

    name = "dense"
    Settings = DenseSettings
    is_stored = True
    index_version = 2

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._rows = Rows(len(corpus), self._embed_passages)
        self._index: Any = None  # of faiss; None over an empty corpus and in a restricted copy
        self._vectors: Vectors | None = None  # of a restricted copy

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of this retriever, shared with all others of the same spec."""
        return make_embedder(self.settings.embedder, self.settings.api_base)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """The `k` passages most similar to `query`, best first."""
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; the queries are embedded together."""
        self.build()
        k = min(k, len(self.corpus))
        asked = [query for query in queries if query.strip()]
        if k < 1 or not asked:
            return [[] for _ in queries]
        nearest = dict(zip(asked, self._nearest(self.embed_queries(asked), k), strict=True))
        return [
            [self.corpus.passages[i].scored(score) for i, score in nearest.get(query, [])]
            for query in queries
        ]

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """The vectors of `queries`, shape `(len(queries), d)`."""
        prefix = self.settings.query_prefix
        return self.embedder.embed_queries([prefix + query for query in queries])

    def passage_vectors(self, folder: Path | None, progress: Progress | None) -> Vectors:
        """The vectors of all passages, shape `(n, d)`; many are put into `folder` when made."""
        return self._rows.all(folder, progress)

    def restrict(self, positions: Sequence[int]) -> Dense:
        """Dense retrieval over the passages at `positions`; each is embedded once, when needed."""
        small = type(self)(self.corpus.subset(positions), **self.settings.model_dump())
        if self._index is not None:
            small._vectors = self._index.reconstruct_batch(np.asarray(positions, dtype=np.int64))
        else:
            small._vectors = self._rows.get(positions)
        small._ready = True
        return small

    def prepare_restricted(self, store: Store | None, progress: Progress | None) -> None:
        """Embed the whole corpus and keep the vectors, where there is a store to keep them in.

        Without one, each passage is embedded when a question first needs it.
        """
        if store is not None:
            self.build(store, progress)

    def index_settings(self) -> dict[str, Any]:
        """What decides the vectors and the kind of index."""
        settings = self.settings.model_dump(include={"title", "passage_prefix"})
        kind = vectors.choose_kind(self.settings.index, len(self.corpus))
        return {**settings, "embedder": self.embedder.identity, "index": kind}

    def facts(self) -> dict[str, Any]:
        """The embedder, the kind of index, and what embedding the passages took."""
        return {
            "embedder": self.embedder.identity,
            "vectors": vectors.choose_kind(self.settings.index, len(self.corpus)),
            **self._rows.spent(),
        }

    @property
    def index_calls(self) -> list[Call]:
        """The calls that embedding passages has taken in this process; no question's."""
        return list(self._rows.calls)

    def _nearest(self, queries: Vectors, k: int) -> list[Hits]:
        if self._vectors is not None:
            return [top(self._vectors @ query, k) for query in queries]
        return vectors.nearest(self._index, queries, k)

    def _make(self, progress: Progress | None) -> None:
        if len(self.corpus):
            rows = self.passage_vectors(self._unfinished, progress)
            self._adopt(vectors.make_index(rows, self.settings.index))
            self._rows.forget()

    def _adopt(self, index: Any) -> None:
        vectors.tune(index, nprobe=self.settings.nprobe, ef_search=self.settings.ef_search)
        self._index = index

    def _save(self, folder: Path) -> None:
        if self._index is not None:
            vectors.save(self._index, folder / "vectors.faiss")

    def _load(self, folder: Path) -> None:
        if len(self.corpus):
            self._adopt(vectors.load(folder / "vectors.faiss"))

    def _check(self) -> None:
        held = 0 if self._index is None else self._index.ntotal
        if held != len(self.corpus):
            raise ValueError(f"the index has {held} vectors for {len(self.corpus)} passages")

    def _embed_passages(
        self, positions: Sequence[int], progress: Progress | None
    ) -> tuple[Vectors, list[Call]]:
        """The vectors at `positions`, each text once, and the calls that took: no question's."""
        texts = [self._text(self.corpus.passages[i]) for i in positions]
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        with open_ledger() as ledger:
            made = self.embedder.embed(list(distinct), progress)
        return made[[distinct[text] for text in texts]], list(ledger.calls)

    def _text(self, passage: Passage) -> str:
        settings = self.settings
        titled = f"{passage.title} {passage.text}" if settings.title else passage.text
        return f"{settings.passage_prefix}{titled}".strip()
