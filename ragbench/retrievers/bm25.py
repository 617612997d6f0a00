"""BM25 (Robertson et al. 1994) over precomputed weights.

The score of a passage is the sum, over the words of the query with their repeats, of
idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)). `postings` holds the weights,
`scores` selects the best.
"""

import importlib.util
import math
import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.errors import needs_extra
from ragbench.retrievers.base import RETRIEVERS, Corpus, Hits, Progress, Ranking
from ragbench.retrievers.postings import WORDS, Postings, Weighting, make_postings, sparse_search
from ragbench.retrievers.scores import best
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
class BM25(Ranking):
    """Lexical search."""

    name = "bm25"
    Settings = BM25EngineSettings
    is_stored = True
    index_version = 2

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._words = Words(self.settings)
        self._postings: Postings | None = None  # None also where no passage has a word
        self._use_numba = self._choose_engine()

    def index_settings(self) -> dict[str, Any]:
        """All settings but the engine, which gives the same weights either way."""
        settings: dict[str, Any] = self.settings.model_dump(mode="json", exclude={"engine"})
        return settings

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

    def _choose_engine(self) -> bool:
        if self.settings.engine == "numba":
            with needs_extra("engine=numba", "set engine=auto"):
                import numba  # noqa: F401
            return True
        large = self.settings.engine == "auto" and len(self.corpus) >= _NUMBA_FROM
        return large and importlib.util.find_spec("numba") is not None

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

        settings = self.settings
        weighting = Weighting(settings.k1, settings.b, settings.idf)
        self._postings = make_postings(counted(), weighting)

    def _save(self, folder: Path) -> None:
        if self._postings is not None:
            self._postings.save(folder)

    def _load(self, folder: Path) -> None:
        if (folder / WORDS).exists():
            self._postings = Postings.load(folder)

    def _check(self) -> None:
        if self._postings is not None:
            self._postings.check(len(self.corpus))


@RETRIEVERS.register("rank_bm25")
class RankBM25(Ranking):
    """Lexical search by the plain formula; the same results as `bm25`, for small corpora."""

    name = "rank_bm25"
    Settings = BM25Settings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._words = Words(self.settings)
        self._index: Any = None

    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        if self._index is None:
            return [[] for _ in queries]
        return [best(np.asarray(self._index.get_scores(self._words(q))), k) for q in queries]

    def _make(self, progress: Progress | None) -> None:
        from rank_bm25 import BM25Okapi

        class LuceneIdf(BM25Okapi):
            def _calc_idf(self, nd: dict[str, int]) -> None:
                self.idf = {
                    word: math.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5))
                    for word, n in nd.items()
                }

        words = [self._words.of_passage(passage) for passage in self.corpus]
        if any(words):
            engine = BM25Okapi if self.settings.idf == "okapi" else LuceneIdf
            self._index = engine(words, k1=self.settings.k1, b=self.settings.b, epsilon=0.25)
