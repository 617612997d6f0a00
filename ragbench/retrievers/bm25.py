"""BM25 (Robertson et al. 1994) over precomputed weights.

The score of a passage is the sum, over the words of the query with their repeats, of
idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)), with Lucene's idf, which is
never negative. `postings` holds the weights.
"""

import importlib.util
import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.retrievers.base import RETRIEVERS, Corpus, Hits, Progress, Ranking
from ragbench.retrievers.postings import WORDS, Postings, make_postings, sparse_search
from ragbench.retrievers.text import TextSettings, Words

#: Below this size numpy answers in less time than it takes to load the compiled kernel.
_NUMBA_FROM = 2_000
#: From this size on a query takes long enough for threads to pay.
_THREADS_FROM = 20_000


class BM25Settings(TextSettings):
    """Knobs of BM25."""

    k1: float = Field(
        0.9, ge=0, le=10, description="saturation of repeated words; 0 ignores repeats"
    )
    b: float = Field(0.4, ge=0, le=1, description="normalisation by length; 0 for none, 1 for full")


@RETRIEVERS.register("bm25")
class BM25(Ranking):
    """Lexical search."""

    name = "bm25"
    Settings = BM25Settings
    is_stored = True
    index_version = 3

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._words = Words(self.settings)
        self._postings: Postings | None = None  # None also where no passage has a word
        large = len(corpus) >= _NUMBA_FROM
        self._use_numba = large and importlib.util.find_spec("numba") is not None

    def facts(self) -> dict[str, Any]:
        """The engine and the number of words."""
        engine = "numba" if self._use_numba else "numpy"
        return {"engine": engine, "words": len(self.vocabulary)}

    @property
    def vocabulary(self) -> Collection[str]:
        """The words of the corpus, in ascending order; none before the index is made."""
        return self._postings.words.keys() if self._postings is not None else ()

    def postings(self, word: str) -> npt.NDArray[np.int32]:
        """Positions of the passages that hold `word`, ascending; none where none does."""
        if self._postings is None or word not in self._postings.words:
            return np.empty(0, dtype=np.int32)
        place = self._postings.words[word]
        return self._postings.indices[slice(*self._postings.indptr[place : place + 2])]

    def terms(self, query: str) -> npt.NDArray[np.int32]:
        """The places in the vocabulary of the words of `query` that the corpus has, repeats too."""
        known = self._postings.words if self._postings is not None else {}
        return np.array([known[word] for word in self._words(query) if word in known], np.int32)

    def by_passage(self) -> Any:
        """The weights as a scipy matrix by column, a passage each; None where none has a word."""
        return self._postings and self._postings.by_passage(len(self.corpus))

    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        """On a large corpus as many at once as there are cores."""
        if not self._use_numba or len(self.corpus) < _THREADS_FROM or len(queries) < 2:
            return [self._ranked(query, k) for query in queries]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda query: self._ranked(query, k), queries))

    def _ranked(self, query: str, k: int) -> Hits:
        if self._postings is None:
            return []
        n, compiled = len(self.corpus), self._use_numba
        return sparse_search(self.terms(query), self._postings, n, k, compiled=compiled)

    def _make(self, progress: Progress | None) -> None:
        def counted() -> Iterator[list[str]]:
            n = len(self.corpus)
            for done, passage in enumerate(self.corpus.passages, start=1):
                yield self._words.of_passage(passage)
                if progress and (done % 1000 == 0 or done == n):
                    progress(done, n)

        self._postings = make_postings(counted(), k1=self.settings.k1, b=self.settings.b)

    def _save(self, folder: Path) -> None:
        if self._postings is not None:
            self._postings.save(folder)

    def _load(self, folder: Path) -> None:
        if (folder / WORDS).exists():
            self._postings = Postings.load(folder)

    def _check(self) -> None:
        if self._postings is not None:
            self._postings.check(len(self.corpus))
