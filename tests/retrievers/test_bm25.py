"""bm25 against the formula, by hand and by rank_bm25, summed by numpy and by numba."""

import itertools
import math
import random
import sys

import bm25s
import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from rank_bm25 import BM25Okapi

from ragbench.errors import MissingExtraError
from ragbench.retrievers import bm25, make_retriever, postings, text as text_module
from tests.retrievers.conftest import make_corpus, random_texts


class Reference(BM25Okapi):
    """rank_bm25 with Lucene's inverse document frequencies."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        n = self.corpus_size
        self.idf = {
            word: math.log(1 + (n - held + 0.5) / (held + 0.5)) for word, held in nd.items()
        }


@pytest.fixture(params=[0, 10**9], ids=["numba", "numpy"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "_NUMBA_FROM", request.param)


def weights(texts: list[list[str]]) -> postings.Postings:
    made = postings.make_postings(texts, k1=0.9, b=0.4)
    assert made is not None
    return made


def test_scores_are_the_textbook_formula() -> None:
    corpus = make_corpus(["red fox", "red red dog runs", "blue bird"], title=lambda i: "")
    found = make_retriever("bm25", corpus, k1=1.2, b=0.75).search("red fox", k=5)

    def score(tf: int, length: int, n: int) -> float:
        idf = math.log(1 + (3 - n + 0.5) / (n + 0.5))
        return idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / (8 / 3)))

    assert [p.pid for p in found] == ["p0", "p1"]
    assert found[0].score == pytest.approx(score(1, 2, 2) + score(1, 2, 1), rel=1e-5)
    assert found[1].score == pytest.approx(score(2, 4, 2), rel=1e-5)


def test_equals_rank_bm25_on_generated_corpora() -> None:
    """500 corpora: the same passages with the same scores, ties by position."""
    for seed in range(500):
        rng = random.Random(seed)
        texts = random_texts(rng.randint(1, 40), seed=seed)
        settings = {"k1": rng.uniform(0.2, 2), "b": rng.random()}
        query = " ".join(rng.choices([f"w{i}" for i in range(70)], k=rng.randint(1, 6)))
        corpus = make_corpus(texts, title=lambda i: "")
        found = make_retriever("bm25", corpus, **settings).search(query, k=50)
        scores = []
        if any(texts):
            scores = Reference([t.split() for t in texts], **settings).get_scores(query.split())
        expected = {f"p{i}": score for i, score in enumerate(scores) if score > 0}
        assert {p.pid: p.score for p in found} == pytest.approx(expected, rel=1e-4, abs=1e-6)
        for a, b in itertools.pairwise(found):
            assert a.score > b.score or int(a.pid[1:]) < int(b.pid[1:])


@pytest.mark.parametrize("block", [1, 50, 10**9])
def test_weights_are_those_of_bm25s_however_large_the_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "_BLOCK_WORDS", block)
    texts = [text.split() for text in ["", *random_texts(200, seed=5), "many " * 300]]
    made = weights(texts)
    reference = bm25s.BM25(k1=0.9, b=0.4, method="atire", idf_method="lucene")
    ids = [[made.words[word] for word in text] for text in texts]
    reference.index((ids, dict(made.words)), create_empty_token=False, show_progress=False)
    for name in ("indptr", "indices"):
        assert np.array_equal(getattr(made, name), reference.scores[name])
    assert np.allclose(made.data, reference.scores["data"], rtol=1e-5)


def test_a_large_vocabulary_is_searched_on_disk(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = weights(
        [["zebra", "été", "東京"], ["a\ud800", "ﬁ", "zebra"], ["b" * 5000, "\U0001f4a5"]]
    )
    made.save(tmp_path)
    in_memory = postings.Postings.load(tmp_path).words
    monkeypatch.setattr(postings, "_DICT_TO", 0)
    on_disk = postings.Postings.load(tmp_path).words
    assert not isinstance(on_disk, dict)
    assert dict(on_disk) == in_memory == made.words
    assert all(word not in on_disk for word in ("", "a", "zebras", "\U0010ffff"))


def test_the_stop_words_are_lucenes() -> None:
    assert set(STOPWORDS_EN) == text_module._STOPWORDS


@pytest.mark.parametrize("block", [1, 7, 64, 100, 1000])
def test_the_compiled_search_is_the_plain_sum_however_large_the_blocks(block: int) -> None:
    """To the last digit, ties included; k runs from 1 to more than there are."""
    made = weights([text.split() for text in random_texts(300, seed=9, vocabulary=40, length=12)])
    rng = np.random.default_rng(block)
    for k in (1, 2, 10, 63, 300, 400):
        terms = rng.integers(0, len(made.words), size=rng.integers(1, 9)).astype(np.int32)
        expected = postings.sparse_search(terms, made, 300, k, compiled=False)
        places, sums = postings.compiled_search()(
            terms, made.data, made.indices, made.indptr, 300, k, block
        )
        assert list(zip(places.tolist(), sums.tolist(), strict=True)) == expected


@pytest.mark.parametrize("fault", ["falls", "repeats", "too high", "negative"])
def test_postings_that_are_out_of_order_or_range_are_found(fault: str) -> None:
    made = weights([text.split() for text in random_texts(30, seed=3)])
    made.check(30)
    for word in range(len(made.words)):
        low, high = made.indptr[word : word + 2]
        for at in range(low + (fault in ("falls", "repeats")), high):
            before, last = made.indices[at], made.indices[at - 1]
            wrong = {"falls": last - 1, "repeats": last, "too high": 30, "negative": -1}
            made.indices[at] = wrong[fault]
            with pytest.raises(ValueError, match="do not fit"):
                made.check(30)
            made.indices[at] = before


def test_title_counts_as_often_as_it_weighs_and_stop_words_do_not() -> None:
    corpus = make_corpus(["the rome rome", "x y"], title=lambda i: ["paris", "rome"][i])
    without = make_retriever("bm25", corpus, title_weight=0)
    assert [p.pid for p in without.search("rome", k=2)] == ["p0"]
    heavy = make_retriever("bm25", corpus, title_weight=5, b=0.0)
    assert [p.pid for p in heavy.search("rome", k=2)] == ["p1", "p0"]
    assert without.search("the of", k=2) == []
    kept = make_retriever("bm25", corpus, stopwords="none")
    assert [p.pid for p in kept.search("the", k=2)] == ["p0"]


def test_search_many_equals_a_loop_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "_THREADS_FROM", 10)
    retriever = make_retriever("bm25", make_corpus(random_texts(200, seed=3)))
    queries = [*random_texts(30, seed=4, length=5), "", "nothing known"]
    assert retriever.search_many(queries, k=7) == [retriever.search(q, k=7) for q in queries]


def test_stemming_joins_forms_and_a_missing_stemmer_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ragbench\[stem\]', or set"):
        make_retriever("bm25", make_corpus(["runs"]), stemmer="english")
    monkeypatch.setattr(
        text_module, "_stemmer", lambda name: lambda words: [w.rstrip("s") for w in words]
    )
    retriever = make_retriever("bm25", make_corpus(["it runs"]), stemmer="english")
    assert [p.pid for p in retriever.search("run", k=1)] == ["p0"]
