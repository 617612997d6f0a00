"""Dense search against numpy, its kinds of index, and sharing of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from ragbench.ledger import open_ledger
from ragbench.retrievers import Corpus, PerQuestion, make_retriever, vectors
from ragbench.retrievers.embedders.base import normalized
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts


def test_exact_order_is_numpys() -> None:
    rng = np.random.default_rng(0)
    rows = normalized(rng.standard_normal((500, 24)).astype(np.float32))
    queries = normalized(rng.standard_normal((40, 24)).astype(np.float32))
    index = vectors.make_index(rows, "exact")
    for query, hits in zip(queries, vectors.nearest(index, queries, 10), strict=True):
        scores = rows @ query
        expected = np.argsort(-scores, kind="stable")[:10]
        assert [i for i, _ in hits] == expected.tolist()
        assert [s for _, s in hits] == pytest.approx(scores[expected].tolist(), abs=1e-6)


@pytest.mark.parametrize("kind", ["exact", "fp16", "hnsw", "ivf"])
def test_each_kind_finds_a_vector_itself(kind: str) -> None:
    rows = normalized(np.random.default_rng(1).standard_normal((300, 16)).astype(np.float32))
    index = vectors.make_index(rows, kind)
    vectors.tune(index, nprobe=64, ef_search=128)
    hits = vectors.nearest(index, rows[:50], 3)
    assert [row[0][0] for row in hits] == list(range(50))
    assert all(row[0][1] == pytest.approx(1, abs=1e-2) for row in hits)


@pytest.mark.parametrize(("n", "kind"), [(100_000, "exact"), (100_001, "fp16"), (1_000_001, "ivf")])
def test_kind_is_chosen_by_size(n: int, kind: str) -> None:
    assert vectors.choose_kind("auto", n) == kind
    assert vectors.choose_kind("hnsw", n) == "hnsw"


def test_ties_stand_in_corpus_order_even_at_the_cut() -> None:
    corpus = make_corpus(["other"] * 3 + ["same words"] * 1000, title=lambda i: "")
    found = make_retriever("dense", corpus).search("same words", k=5)
    assert [p.pid for p in found] == ["p3", "p4", "p5", "p6", "p7"]


def test_search_many_equals_a_loop() -> None:
    retriever = make_retriever("dense", make_corpus(random_texts(200, seed=2)))
    queries = [*random_texts(40, seed=5), ""]
    assert retriever.search_many(queries, k=6) == [retriever.search(q, k=6) for q in queries]


def test_the_same_text_is_embedded_once(embedder: WordEmbedder) -> None:
    make_retriever("dense", make_corpus(["a", "b", "a"], title=lambda i: "")).build()
    assert sorted(embedder.embedded) == ["a", "b"]


def test_prefixes_and_title_reach_the_embedder(embedder: WordEmbedder) -> None:
    settings = {"query_prefix": "query: ", "passage_prefix": "passage: "}
    retriever = make_retriever("dense", make_corpus(["x"]), **settings)
    retriever.search("who", k=1)
    assert embedder.embedded == ["passage: T0 x", "query: who"]
    make_retriever("dense", make_corpus(["y"]), title=False).build()
    assert embedder.embedded[-1] == "y"


def test_a_restricted_retriever_shares_vectors(embedder: WordEmbedder) -> None:
    retriever = make_retriever("dense", make_corpus(random_texts(50, seed=6))).build()
    embedder.embedded.clear()
    small = retriever.restrict([7, 3, 20])
    assert not embedder.embedded
    found = small.search("w1 w2", k=9)
    whole = {p.pid: p.score for p in retriever.search("w1 w2", k=50)}
    assert sorted(p.pid for p in found) == ["p20", "p3", "p7"]
    assert [p.score for p in found] == pytest.approx(
        sorted((whole[p] for p in ("p7", "p3", "p20")), reverse=True), abs=1e-6
    )


def _contexts(n: int) -> Corpus:
    corpus = make_corpus([f"text number {i}" for i in range(n)])
    return Corpus(corpus.passages, contexts={"q1": (0, 1, 2), "q2": (2, 3)})


def test_distractor_embeds_only_what_is_asked_for_and_once(embedder: WordEmbedder) -> None:
    retriever = make_retriever("dense", _contexts(100), setting="distractor")
    assert isinstance(retriever, PerQuestion)
    retriever.build()
    retriever.for_question("q1")
    retriever.for_question("q2")
    assert embedder.embedded == [f"T{i} text number {i}" for i in range(4)]


def test_distractor_with_a_store_embeds_all_once(embedder: WordEmbedder, store: IndexStore) -> None:
    for _ in range(2):
        retriever = make_retriever("dense", _contexts(30), setting="distractor").build(store)
        found = retriever.for_question("q2").search("text number 3", k=5)
        assert [p.pid for p in found] == ["p3", "p2"]
    assert sum(text.startswith("T") for text in embedder.embedded) == 30


def test_index_work_is_not_the_questions(embedder: WordEmbedder) -> None:
    retriever = make_retriever("dense", _contexts(10), setting="distractor")
    with open_ledger() as ledger:
        retriever.for_question("q1").search("text", k=1)
    assert [(call.kind, call.prompt_tokens) for call in ledger.calls] == [("embed", 1)]
    assert retriever.card()["index"]["embedding_tokens"] == 12


def test_a_repeated_query_counts_as_if_asked_again() -> None:
    retriever = make_retriever("dense", make_corpus(["a b", "c d"])).build()
    with open_ledger() as first:
        retriever.search_many(["a b", "c"], k=1)
    with open_ledger() as second:
        retriever.search_many(["a b", "c"], k=1)
    assert first.as_if == second.as_if
    assert second.billed.calls == 0
