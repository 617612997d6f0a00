"""bm25 against the formula of rank_bm25, and its stop words against those of bm25s."""

import itertools
import math
import random

import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from rank_bm25 import BM25Okapi

from ragbench.retrievers import bm25, make_retriever
from ragbench.retrievers.base import best, ordered
from tests.retrievers.conftest import make_corpus, random_texts


class Reference(BM25Okapi):
    """rank_bm25 with Lucene's inverse document frequencies."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        n = self.corpus_size
        self.idf = {
            word: math.log(1 + (n - held + 0.5) / (held + 0.5)) for word, held in nd.items()
        }


def test_equals_rank_bm25_on_generated_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 corpora: the same passages with the same scores, ties by position."""
    for seed in range(20):
        rng = random.Random(seed)
        monkeypatch.setattr(bm25, "_BLOCK_WORDS", rng.choice([1, 50, 10**9]))
        texts = random_texts(rng.randint(1, 40), seed=seed)
        settings = {"k1": rng.uniform(0.2, 2), "b": rng.random()}
        query = " ".join(rng.choices([f"w{i}" for i in range(70)], k=rng.randint(1, 6)))
        corpus = make_corpus(texts, title=lambda i: "")
        scores = []
        if any(texts):
            scores = Reference([t.split() for t in texts], **settings).get_scores(query.split())
        expected = {f"p{i}": score for i, score in enumerate(scores) if score > 0}
        found = make_retriever("bm25", corpus, **settings).search(query, k=50)
        assert {p.pid: p.score for p in found} == pytest.approx(expected, rel=1e-4, abs=1e-6)
        for a, b in itertools.pairwise(found):
            assert a.score > b.score or int(a.pid[1:]) < int(b.pid[1:])


def test_the_best_of_many_scores_are_those_of_a_sort() -> None:
    scores = np.random.default_rng(0).integers(0, 500, 1000).astype(np.float32)  # ties and zeros
    every = np.flatnonzero(scores)
    for k in (0, 1, 3, 40, 2000):
        assert best(scores, k) == ordered(every, scores[every], k)


def test_title_counts_as_often_as_it_weighs_and_stop_words_do_not() -> None:
    assert set(STOPWORDS_EN) == bm25._STOPWORDS  # Lucene's
    corpus = make_corpus(["the rome rome", "x y"], title=lambda i: ["paris", "rome"][i])
    without = make_retriever("bm25", corpus, title_weight=0)
    assert [p.pid for p in without.search("rome", k=2)] == ["p0"]
    heavy = make_retriever("bm25", corpus, title_weight=5, b=0.0)
    assert [p.pid for p in heavy.search("rome", k=2)] == ["p1", "p0"]
    assert without.search("the of", k=2) == []
    kept = make_retriever("bm25", corpus, stopwords="none")
    assert [p.pid for p in kept.search("the", k=2)] == ["p0"]


def test_rank_bm25_gives_the_scores_of_the_package_over_words_split_on_blanks() -> None:
    texts = ["The mill, founded.", "the Mill was sold", "a town", ""]
    corpus = make_corpus(texts, title=lambda i: f"T{i}")
    scores = BM25Okapi([f"t{i} {text.lower()}".split() for i, text in enumerate(texts)])
    for query in ("MILL", "the mill, town", "founded", "t3"):
        expected = scores.get_scores(query.lower().split())
        found = make_retriever("rank_bm25", corpus).search(query, k=9)
        known = {f"p{i}": pytest.approx(s, rel=1e-5) for i, s in enumerate(expected) if s > 0}
        assert {passage.pid: passage.score for passage in found} == known
    changed = make_retriever("rank_bm25", corpus, k1=0.5, b=0.0)
    assert changed.search("mill", k=1) != make_retriever("rank_bm25", corpus).search("mill", k=1)
