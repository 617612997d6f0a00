"""What every registered retriever owes: hostile corpora, threads, copies."""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ragbench.passages import Passage
from ragbench.programs.graph_search import GraphSearch
from ragbench.retrievers import RETRIEVERS, Corpus, Retriever, make_retriever
from ragbench.retrievers.bm25 import BM25
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import make_corpus, random_texts

#: Settings that add nothing: maxsim needs a model's token vectors, and made-up passages are in no
#: corpus. Both have tests of their own.
PLAIN = {"rerank": "rerank(reranker=none)", "distracting": "distracting(rate=0)"}
#: Those that ask a server or an LM have tests of their own.
ASKING = {"http", "qdrant", *(name for name, kind in RETRIEVERS if issubclass(kind, GraphSearch))}
SPECS = [PLAIN.get(name, name) for name in RETRIEVERS.names() if name not in ASKING]

HOSTILE: dict[str, list[str]] = {
    "empty": [],
    "one passage": ["the only words here"],
    "all identical": ["the same words"] * 40,
    "empty texts": ["", "", "words", ""],
    "nothing but empty texts": ["", "", ""],
    "one megabyte": ["words " * 180_000, "other words"],
    "no letters": ["!!! ... ???", "--- 💥 ---", "\n\t "],
    "stop words alone": ["the of and", "to be or not"],
    "mixed scripts": ["words Ελλάδα 東京 القاهرة Москва", "İstanbul ß ﬁ", "e\u0301 é"],
    "lone surrogate": ["words \ud800 here", "fine"],
}
QUERIES = ["words", "東京", "", "   ", "the", "zzzz unknown", "!!!", "\ud800", "words " * 5000]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("texts", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("stored", [False, True], ids=["memory", "stored"])
def test_search_of_hostile_corpora_returns_valid_passages(
    spec: str, texts: list[str], stored: bool, store: IndexStore
) -> None:
    corpus = make_corpus(texts, title=lambda i: "")
    for k in (0, 1, 3, len(texts) + 5):
        retriever = make_retriever(spec, corpus).build(store if stored else None)
        many = retriever.search_many(QUERIES, k=k)
        for query, hits in zip(QUERIES, many, strict=True):
            _check(hits, corpus, k)
            assert hits == retriever.search(query, k=k)
            if not query.strip():
                assert hits == []


def _check(hits: list[Passage], corpus: Corpus, k: int) -> None:
    assert len(hits) <= min(k, len(corpus))
    assert len({hit.pid for hit in hits}) == len(hits)
    positions = [corpus.positions[hit.pid] for hit in hits]
    ranked = [(-hit.score, position) for hit, position in zip(hits, positions, strict=True)]
    assert ranked == sorted(ranked)
    assert all(corpus[i].text == hit.text for i, hit in zip(positions, hits, strict=True))


@pytest.mark.parametrize("spec", [*SPECS, "hybrid(fusion=minmax)"])
def test_search_from_sixteen_threads_equals_one_thread(spec: str) -> None:
    corpus = make_corpus(random_texts(200, seed=21))
    queries = random_texts(20, seed=22, length=5)
    alone = [make_retriever(spec, corpus).search(query, k=8) for query in queries]
    shared = make_retriever(spec, corpus)  # not built: the threads race for that too
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda query: shared.search(query, k=8), queries * 3))
    assert together == alone * 3


@pytest.mark.parametrize("spec", SPECS)
def test_restrict_searches_only_those_passages(spec: str) -> None:
    corpus = make_corpus(random_texts(60, seed=31))
    whole: Retriever = make_retriever(spec, corpus)
    assert copy.deepcopy({"r": [whole]})["r"][0] is whole
    small = whole.restrict([5, 9, 2])
    hits = small.search("w0 w1 w2 w3", k=10)
    assert {hit.pid for hit in hits} <= {"p5", "p9", "p2"}
    direct = make_retriever(spec, corpus.subset([5, 9, 2])).search("w0 w1 w2 w3", k=10)
    assert [(h.pid, h.score) for h in hits] == [
        (h.pid, pytest.approx(h.score, abs=1e-6)) for h in direct
    ]


def test_restrict_of_a_subclass_with_named_settings_passes_them_by_name() -> None:
    class Titled(BM25):
        def __init__(self, corpus: Corpus, k1: float = 0.9, **settings: Any) -> None:
            super().__init__(corpus, k1=k1, **settings)
            self.given = k1

    small = Titled(make_corpus(random_texts(9, seed=3)), k1=1.7).restrict([5, 2])
    assert (small.given, small.settings.k1, len(small.corpus)) == (1.7, 1.7, 2)


#: rank-bm25 finds nothing by words that most passages have.
@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "rank_bm25"])
def test_search_if_scores_tie_keeps_corpus_order(spec: str) -> None:
    corpus = make_corpus(["other"] * 3 + ["same words"] * 900, title=lambda i: "")
    found = make_retriever(spec, corpus).search("same words", k=5)
    assert [hit.pid for hit in found] == ["p3", "p4", "p5", "p6", "p7"]
