"""BM25 (Robertson et al. 1994) over precomputed weights (bm25s: Lù 2024, arXiv:2407.03618).

The score of a passage is the sum, over the words of the query with their repeats, of
idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)). bm25s computes and stores the
weights; the selection of the best is ours (see `topk`).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.retrievers import topk
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Progress, Retriever
from ragbench.retrievers.text import TextSettings, Words

#: Below this size numpy answers in less time than it takes to load the compiled kernel.
_NUMBA_FROM = 2_000
#: From this size on a query takes long enough for threads to pay.
_THREADS_FROM = 20_000


class BM25Settings(TextSettings):
    """Knobs of BM25."""

    k1: float = Field(0.9, ge=0, le=10, description="how slowly repeats of a word saturate")
    b: float = Field(0.4, ge=0, le=1, description="how much long passages are held back")
    idf: Literal["lucene", "okapi"] = Field(
        "lucene",
        description="log(1 + (N - n + .5) / (n + .5)), never negative; or rank_bm25's, whose "
        "negative values are replaced by a quarter of the mean",
    )


class BM25EngineSettings(BM25Settings):
    """Knobs of `bm25`."""

    engine: Literal["auto", "numba", "numpy"] = Field(
        "auto", description="what sums the weights; auto takes numba from 2,000 passages on"
    )


@RETRIEVERS.register("bm25")
class BM25(Retriever):
    """Lexical search."""

    name = "bm25"
    Settings = BM25EngineSettings
    is_stored = True

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._words = Words(self.settings)
        self._index: Any = None  # None also where no passage has a word
        self._use_numba = self._choose_engine()

    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages that share a word with `query`, best first."""
        self.build()
        passages = self.corpus.passages
        return [passages[i].scored(score) for i, score in self._hits(query, k)]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; on a large corpus by as many threads as there are cores."""
        self.build()
        if not self._use_numba or len(self.corpus) < _THREADS_FROM or len(queries) < 2:
            return [self.search(query, k=k) for query in queries]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda query: self.search(query, k=k), queries))

    def index_settings(self) -> dict[str, Any]:
        """All settings but the engine, which gives the same weights either way."""
        settings: dict[str, Any] = self.settings.model_dump(mode="json", exclude={"engine"})
        return settings

    def facts(self) -> dict[str, Any]:
        """The engine and the number of words."""
        engine = "numba" if self._use_numba else "numpy"
        words = len(self._index.vocab_dict) if self._index is not None else 0
        return {"engine": engine, "words": words}

    @property
    def vocabulary(self) -> Collection[str]:
        """The words of the corpus."""
        self.build()
        return self._index.vocab_dict if self._index is not None else ()

    def postings(self, word: str) -> npt.NDArray[np.int32]:
        """Positions of the passages that hold `word`, ascending; `word` is of the vocabulary."""
        term = self._index.vocab_dict[word]
        return self._indices[self._indptr[term] : self._indptr[term + 1]]

    def _choose_engine(self) -> bool:
        if self.settings.engine == "numba" and not topk.has_numba():
            raise ConfigError("engine=numba needs numba; run pip install numba or set engine=auto")
        wanted = self.settings.engine == "numba" or len(self.corpus) >= _NUMBA_FROM
        return bool(self.settings.engine != "numpy" and wanted and topk.has_numba())

    def _hits(self, query: str, k: int) -> topk.Hits:
        k = min(k, len(self.corpus))
        if self._index is None or k < 1:
            return []
        vocab = self._index.vocab_dict
        terms = [vocab[word] for word in self._words(query) if word in vocab]
        if not terms:
            return []
        ids = np.array(terms, dtype=np.int32)
        if self._use_numba:
            return topk.sparse_search(ids, self._data, self._indices, self._indptr, self._n, k)
        return topk.best(self._index.get_scores_from_ids(ids), k)

    def _make(self, progress: Progress | None) -> None:
        import bm25s

        ids, vocab = self._count(progress)
        if not vocab:
            return
        settings = self.settings
        index = bm25s.BM25(k1=settings.k1, b=settings.b, method="atire", idf_method="lucene")
        index.index((ids, vocab), create_empty_token=False, show_progress=False)
        if settings.idf == "okapi":
            _use_okapi_idf(index.scores)
        self._adopt(index)

    def _count(self, progress: Progress | None) -> tuple[list[array[int]], dict[str, int]]:
        """The ids of each passage's words, and the id of each word."""
        vocab: dict[str, int] = {}
        ids: list[array[int]] = []
        for done, passage in enumerate(self.corpus.passages):
            words = self._words.of_passage(passage)
            ids.append(array("i", [vocab.setdefault(word, len(vocab)) for word in words]))
            if progress and done % 1000 == 0:
                progress(done, len(self.corpus))
        if progress:
            progress(len(self.corpus), len(self.corpus))
        return ids, vocab

    def _adopt(self, index: Any) -> None:
        # asarray: numba knows arrays, not memory maps
        self._data = np.asarray(index.scores["data"])
        self._indices = np.asarray(index.scores["indices"])
        self._indptr = np.asarray(index.scores["indptr"])
        self._n = len(self.corpus)
        self._index = index

    def _save(self, folder: Path) -> None:
        if self._index is not None:
            self._index.save(folder, show_progress=False)

    def _load(self, folder: Path) -> None:
        import bm25s

        if (folder / "params.index.json").exists():
            self._adopt(bm25s.BM25.load(folder, mmap=True, show_progress=False))


def _use_okapi_idf(scores: dict[str, npt.NDArray[Any]]) -> None:
    """Reweigh the postings from Lucene's inverse document frequencies to rank_bm25's."""
    df = np.diff(scores["indptr"]).astype(np.float64)
    n = float(scores["num_docs"])
    lucene = np.log1p((n - df + 0.5) / (df + 0.5))
    okapi = np.log(n - df + 0.5) - np.log(df + 0.5)
    okapi[okapi < 0] = 0.25 * okapi.mean()
    ratio = np.repeat(okapi / lucene, df.astype(np.int64))
    scores["data"] = (scores["data"] * ratio).astype(np.float32)
