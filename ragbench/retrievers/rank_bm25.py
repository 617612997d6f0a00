"""BM25 by the `rank_bm25` package: slow, readable, and what `bm25` is checked against."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ragbench.retrievers import topk
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Progress, Retriever
from ragbench.retrievers.bm25 import BM25Settings
from ragbench.retrievers.text import Words


@RETRIEVERS.register("rank_bm25")
class RankBM25(Retriever):
    """Lexical search by the plain formula; the same results as `bm25`, for small corpora."""

    name = "rank_bm25"
    Settings = BM25Settings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._words = Words(self.settings)
        self._index: Any = None

    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages that share a word with `query`, best first."""
        self.build()
        if self._index is None or k < 1:
            return []
        scores = np.asarray(self._index.get_scores(self._words(query)))
        return [self.corpus.passages[i].scored(score) for i, score in topk.best(scores, k)]

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
