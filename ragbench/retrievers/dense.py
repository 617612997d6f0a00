"""Dense retrieval: nearest vectors by inner product (faiss: Douze et al. 2024, arXiv:2401.08281).

All vectors have unit length, so a score is a cosine in [-1, 1].
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.ledger import open_ledger
from ragbench.record import Call, total
from ragbench.retrievers import vectors
from ragbench.retrievers.base import RETRIEVERS, Corpus, Hits, Progress, Ranking
from ragbench.retrievers.embedders import Embedder, Vectors, make_embedder

#: Passages whose vectors are written at once; a smaller corpus needs no file.
_PART = 8192


class EmbeddingSettings(Knobs):
    """Knobs of what is embedded, and by what."""

    embedder: str = Field("local", description="local, local:NAME or openai/MODEL")
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
        vectors.NPROBE, ge=1, le=65_536, description="lists of an ivf index read per search"
    )


@RETRIEVERS.register("dense")
class Dense(Ranking):
    """Search by the similarity of sentence vectors; always finds `k` passages if there are."""

    name = "dense"
    Settings = DenseSettings
    is_stored = True
    index_version = 2

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        #: Calls for the index in this process, of no question.
        self.index_calls: list[Call] = []
        self._earlier = np.zeros(3)  # tokens, seconds and dollars of a build that was stopped
        self._embedded: dict[int, Vectors] = {}
        self._index: Any = None  # of faiss; None over an empty corpus

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of this retriever, shared with all others of the same spec."""
        return make_embedder(self.settings.embedder, self.settings.api_base)

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """The vectors of `queries`, shape `(len(queries), d)`."""
        prefix = self.settings.query_prefix
        return self.embedder.embed_queries([prefix + query for query in queries])

    def vectors_of(self, positions: Sequence[int]) -> Vectors:
        """The vectors of the passages at `positions`, at least one; each is embedded once."""
        with self._lock:
            if self._index is not None:
                found: Vectors = self._index.reconstruct_batch(np.asarray(positions, np.int64))
                return found
            missing = [i for i in dict.fromkeys(positions) if i not in self._embedded]
            if missing:
                self._embedded |= dict(zip(missing, self._embed(missing, None), strict=True))
            return np.stack([self._embedded[i] for i in positions])

    def restrict(self, positions: Sequence[int], **other: Any) -> Self:
        """Dense retrieval over the passages at `positions`; each is embedded once, when needed."""
        small = super().restrict(positions, **other)
        if positions:
            small._index = vectors.make_index(self.vectors_of(positions), "exact")
        small._ready = True
        return small

    def prepare_restricted(self, store: Any, progress: Progress | None) -> None:
        """Embed the whole corpus and keep the vectors, where there is a store to keep them in.

        Without one, each passage is embedded when a question first needs it.
        """
        if store is not None:
            self.build(store, progress)

    def index_settings(self) -> dict[str, Any]:
        """What decides the vectors and the kind of index."""
        settings = self.settings.model_dump(include={"title", "passage_prefix"})
        return {**settings, "embedder": self.embedder.identity, "index": self._kind}

    def facts(self) -> dict[str, Any]:
        """The embedder, the kind of index, and what embedding the passages took."""
        facts: dict[str, Any] = {"embedder": self.embedder.identity, "vectors": self._kind}
        if self.index_calls or self._earlier.any():
            tokens, seconds, usd = self._earlier + _spent(self.index_calls)
            facts["embedding_tokens"], facts["embedding_s"] = int(tokens), round(seconds, 3)
            facts["embedding_usd"] = None if np.isnan(usd) else float(usd)
        return facts

    @property
    def _kind(self) -> str:
        return vectors.choose_kind(self.settings.index, len(self.corpus))

    def _hits(self, queries: Sequence[str], k: int) -> list[Hits]:
        return vectors.nearest(self._index, self.embed_queries(queries), k)

    def _make(self, progress: Progress | None) -> None:
        if len(self.corpus):
            rows = self._rows(self._unfinished, progress)
            self._index = vectors.make_index(rows, self.settings.index, self.settings.nprobe)
            self._embedded.clear()

    def _save(self, folder: Path) -> None:
        if self._index is not None:
            vectors.save(self._index, folder / "vectors.faiss")

    def _load(self, folder: Path) -> None:
        if n := len(self.corpus):
            self._index = vectors.load(folder / "vectors.faiss", self.settings.nprobe)
            if self._index.ntotal != n:
                raise ValueError(f"the index has {self._index.ntotal} vectors for {n} passages")

    def _rows(self, folder: Path | None, progress: Progress | None) -> Vectors:
        """All vectors, shape `(n, d)`; many are embedded part by part, each kept in `folder`."""
        n = len(self.corpus)
        if folder is None or n <= _PART:
            return self._embed(range(n), progress)
        folder.mkdir(exist_ok=True)
        rows: Vectors | None = None
        for start in range(0, n, _PART):
            positions = range(start, min(start + _PART, n))
            made = self._part(folder / f"{start}.npz", positions, progress)
            if rows is None:
                path, shape = folder / "all.npy", (n, made.shape[1])
                rows = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=shape)
            rows[positions.start : positions.stop] = made
        assert rows is not None
        return rows

    def _part(self, path: Path, positions: range, progress: Progress | None) -> Vectors:
        """The vectors at `positions`, from the file of a build that was stopped or put there."""
        try:
            with path.open("rb") as stored, np.load(stored) as kept:
                made: Vectors = kept["vectors"]
                self._earlier += kept["spent"]
                return made
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):  # not there, or damaged
            pass
        before = len(self.index_calls)

        def told(done: int, _: int) -> None:
            if progress:
                progress(positions.start + done, len(self.corpus))

        made = self._embed(positions, told)
        partial = path.with_suffix(".new")
        with partial.open("wb") as file:
            np.savez(file, vectors=made, spent=_spent(self.index_calls[before:]))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        return made

    def _embed(self, positions: Sequence[int], progress: Progress | None) -> Vectors:
        """The vectors at `positions`, each text once."""
        texts = [self._text(i) for i in positions]
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        with open_ledger() as ledger:
            made = self.embedder.embed(list(distinct), progress)
        self.index_calls += ledger.calls
        return made[[distinct[text] for text in texts]]

    def _text(self, position: int) -> str:
        passage, settings = self.corpus.passages[position], self.settings
        titled = f"{passage.title} {passage.text}" if settings.title else passage.text
        return f"{settings.passage_prefix}{titled}".strip()


def _spent(calls: Sequence[Call]) -> Any:
    """Tokens, seconds and US dollars of `calls`; not a number where the price is not known."""
    sums = total(calls)
    return np.array(
        [sums.prompt_tokens, sums.latency_s, np.nan if sums.cost_usd is None else sums.cost_usd]
    )
