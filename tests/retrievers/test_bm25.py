"""bm25 against the formula, by hand and by rank_bm25, on both engines."""

import itertools
import math
import random
import sys

import bm25s
import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN

from ragbench.errors import MissingExtraError
from ragbench.retrievers import make_retriever, postings, text as text_module
from tests.retrievers.conftest import make_corpus, random_texts

ENGINES = ("numpy", "numba")


@pytest.mark.parametrize("engine", ENGINES)
def test_scores_are_the_textbook_formula(engine: str) -> None:
    corpus = make_corpus(["red fox", "red red dog runs", "blue bird"], title=lambda i: "")
    found = make_retriever("bm25", corpus, engine=engine, k1=1.2, b=0.75).search("red fox", k=5)

    def score(tf: int, length: int, n: int) -> float:
        idf = math.log(1 + (3 - n + 0.5) / (n + 0.5))
        return idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / (8 / 3)))

    assert [p.pid for p in found] == ["p0", "p1"]
    assert found[0].score == pytest.approx(score(1, 2, 2) + score(1, 2, 1), rel=1e-5)
    assert found[1].score == pytest.approx(score(2, 4, 2), rel=1e-5)


@pytest.mark.parametrize("idf", ["lucene", "okapi"])
def test_equals_rank_bm25_on_generated_corpora(idf: str) -> None:
    """500 corpora for each idf: the same passages with the same scores, ties by position."""
    for seed in range(500):
        rng = random.Random(seed)
        texts = random_texts(rng.randint(1, 40), seed=seed)
        corpus = make_corpus(texts, title=lambda i: "")
        settings = {"k1": rng.uniform(0.2, 2), "b": rng.random(), "idf": idf}
        query = " ".join(rng.choices([f"w{i}" for i in range(70)], k=rng.randint(1, 6)))
        engine = ENGINES[seed % 2]
        fast = make_retriever("bm25", corpus, engine=engine, **settings).search(query, k=50)
        slow = make_retriever("rank_bm25", corpus, **settings).search(query, k=50)
        expected = {p.pid: p.score for p in slow}
        assert {p.pid: p.score for p in fast} == pytest.approx(expected, rel=1e-4, abs=1e-6)
        # Scores equal but for rounding may stand either way; all others in the same order.
        order = [expected[p.pid] for p in fast]
        assert all(a >= b - 1e-4 * abs(a) for a, b in itertools.pairwise(order))
        for a, b in itertools.pairwise(fast):
            assert a.score > b.score or int(a.pid[1:]) < int(b.pid[1:])


@pytest.mark.parametrize("block", [1, 50, 10**9])
def test_weights_are_those_of_bm25s_however_large_the_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "_BLOCK_WORDS", block)
    texts = [text.split() for text in ["", *random_texts(200, seed=5), "many " * 300]]
    made = postings.make_postings(texts, postings.Weighting(0.9, 0.4, "lucene"))
    assert made is not None
    reference = bm25s.BM25(k1=0.9, b=0.4, method="atire", idf_method="lucene")
    ids = [[made.words[word] for word in text] for text in texts]
    reference.index((ids, dict(made.words)), create_empty_token=False, show_progress=False)
    for name in ("indptr", "indices"):
        assert np.array_equal(getattr(made, name), reference.scores[name])
    assert np.allclose(made.data, reference.scores["data"], rtol=1e-5)


def test_a_large_vocabulary_is_searched_on_disk(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [["zebra", "été", "東京"], ["a\ud800", "ﬁ", "zebra"], ["b" * 5000, "\U0001f4a5"]]
    made = postings.make_postings(texts, postings.Weighting(0.9, 0.4, "lucene"))
    assert made is not None
    made.save(tmp_path)
    in_memory = postings.Postings.load(tmp_path).words
    monkeypatch.setattr(postings, "_DICT_TO", 0)
    on_disk = postings.Postings.load(tmp_path).words
    assert isinstance(in_memory, dict)
    assert not isinstance(on_disk, dict)
    assert dict(on_disk) == in_memory == made.words
    assert all(word not in on_disk for word in ("", "a", "zebras", "\U0010ffff"))


def test_the_stop_words_are_lucenes() -> None:
    assert set(STOPWORDS_EN) == text_module._STOPWORDS


def test_deep_searches_are_sorted_by_the_same_rule() -> None:
    corpus = make_corpus(random_texts(3000, seed=1, length=8))
    retriever = make_retriever("bm25", corpus, engine="numba")
    deep = retriever.search("w0 w5", k=postings._MAX_INSERT + 1)
    shallow = retriever.search("w0 w5", k=postings._MAX_INSERT)
    assert [(p.pid, p.score) for p in deep[:-1]] == [(p.pid, p.score) for p in shallow]


@pytest.mark.parametrize("block", [1, 7, 64, 100, 1000])
def test_the_compiled_search_is_the_plain_sum_however_large_the_blocks(block: int) -> None:
    """To the last digit, ties included; k runs from 1 to more than there are."""
    texts = [text.split() for text in random_texts(300, seed=9, vocabulary=40, length=12)]
    made = postings.make_postings(texts, postings.Weighting(0.9, 0.4, "lucene"))
    assert made is not None
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
    texts = [text.split() for text in random_texts(30, seed=3)]
    made = postings.make_postings(texts, postings.Weighting(0.9, 0.4, "lucene"))
    assert made is not None
    made.check(30)
    for word in range(len(made.words)):
        low, high = made.indptr[word : word + 2]
        for at in range(low + (fault in ("falls", "repeats")), high):
            before = made.indices[at]
            made.indices[at] = {
                "falls": made.indices[at - 1] - 1,
                "repeats": made.indices[at - 1],
                "too high": 30,
                "negative": -1,
            }[fault]
            with pytest.raises(ValueError, match="do not fit"):
                made.check(30)
            made.indices[at] = before


def test_stop_words_are_left_out_and_zero_scores_dropped() -> None:
    retriever = make_retriever("bm25", make_corpus(["the cat", "a dog"]))
    assert retriever.search("the a of", k=2) == []
    assert [p.pid for p in retriever.search("the cat", k=2)] == ["p0"]
    kept = make_retriever("bm25", make_corpus(["the cat", "a dog"]), stopwords="none")
    assert [p.pid for p in kept.search("the", k=2)] == ["p0"]


def test_title_counts_as_often_as_it_weighs() -> None:
    corpus = make_corpus(["rome rome", "x y"], title=lambda i: ["paris", "rome"][i])
    without = make_retriever("bm25", corpus, title_weight=0)
    assert [p.pid for p in without.search("rome", k=2)] == ["p0"]
    heavy = make_retriever("bm25", corpus, title_weight=5, b=0.0)
    assert [p.pid for p in heavy.search("rome", k=2)] == ["p1", "p0"]


def test_search_many_equals_a_loop_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragbench.retrievers.bm25._THREADS_FROM", 10)
    retriever = make_retriever("bm25", make_corpus(random_texts(200, seed=3)), engine="numba")
    queries = [*random_texts(30, seed=4, length=5), "", "nothing known"]
    assert retriever.search_many(queries, k=7) == [retriever.search(q, k=7) for q in queries]


def test_engine_is_chosen_by_size_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    small = make_retriever("bm25", make_corpus(["a b"])).build()
    assert small.facts() == {"engine": "numpy", "words": 2}
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtraError, match="needs numba"):
        make_retriever("bm25", make_corpus(["a b"]), engine="numba")
    large = make_retriever("bm25", make_corpus(["a b"] * 3000))
    assert large.facts()["engine"] == "numpy"


def test_a_missing_stemmer_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ragbench\[stem\]', or set"):
        make_retriever("bm25", make_corpus(["runs"]), stemmer="english")


def test_stemming_joins_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        text_module, "_stemmer", lambda name: lambda words: [w.rstrip("s") for w in words]
    )
    retriever = make_retriever("bm25", make_corpus(["it runs"]), stemmer="english")
    assert [p.pid for p in retriever.search("run", k=1)] == ["p0"]
