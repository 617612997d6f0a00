"""LanceDB against bm25, dense and hybrid, stored and not; the engine itself, no stand-in."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from ragbench.retrievers import lance, make_retriever
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts

pytest.importorskip("lancedb", reason="LanceDB is not installed")

CORPUS = make_corpus(random_texts(300, seed=41, vocabulary=400))
QUERIES = random_texts(25, seed=42, vocabulary=400, length=5)


def test_words_are_ranked_as_by_bm25_with_its_constants() -> None:
    ours = make_retriever("bm25", CORPUS, k1=1.2, b=0.75)
    found = make_retriever("lancedb", CORPUS, mode="text")
    for query in filter(str.strip, QUERIES):
        expected = {hit.pid: hit.score for hit in ours.search(query, k=300)}
        hits = found.search(query, k=300)
        assert {hit.pid: hit.score for hit in hits} == pytest.approx(expected, rel=1e-3)


def test_vectors_are_ranked_as_by_dense() -> None:
    expected = make_retriever("dense", CORPUS).search_many(QUERIES, k=12)
    found = make_retriever("lancedb", CORPUS, mode="vector").search_many(QUERIES, k=12)
    for mine, theirs in zip(found, expected, strict=True):
        assert [hit.pid for hit in mine] == [hit.pid for hit in theirs]
        scores = [hit.score for hit in theirs]
        assert [hit.score for hit in mine] == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_both_are_fused_by_weighted_reciprocal_ranks(weight: float) -> None:
    settings = {"rrf_k": 10, "dense_weight": weight, "depth": 3}
    sides = {
        mode: make_retriever("lancedb", CORPUS, mode=mode).search("w3 w9", k=15)
        for mode in ("text", "vector")
    }
    expected: dict[str, float] = {}
    for mode, share in (("text", 1 - weight), ("vector", weight)):
        for rank, hit in enumerate(sides[mode] if share else [], start=1):
            expected[hit.pid] = expected.get(hit.pid, 0) + share / (10 + rank)
    best = sorted(expected.items(), key=lambda item: (-item[1], CORPUS.positions[item[0]]))[:5]
    found = make_retriever("lancedb", CORPUS, **settings).search("w3 w9", k=5)
    assert [(hit.pid, hit.score) for hit in found] == [
        (pid, pytest.approx(score)) for pid, score in best
    ]


def test_ties_stand_in_corpus_order_even_at_the_cut() -> None:
    corpus = make_corpus(["other"] * 3 + ["same words"] * 900, title=lambda i: "")
    for mode in ("text", "vector", "hybrid"):
        found = make_retriever("lancedb", corpus, mode=mode).search("same words", k=4)
        assert [hit.pid for hit in found] == ["p3", "p4", "p5", "p6"], mode


def test_many_vectors_are_searched_by_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance, "_EXACT_TO", 100)
    made = make_retriever("lancedb", CORPUS, mode="vector", nprobe=1000).build()
    (index,) = made._table.list_indices()
    assert (index.columns, index.index_type) == (["vector"], "IvfFlat")
    exact = make_retriever("dense", CORPUS).search_many(QUERIES, k=5)
    found = made.search_many(QUERIES, k=5)
    assert [[h.pid for h in hits] for hits in found] == [[h.pid for h in hits] for hits in exact]


def test_a_stored_table_is_opened_again_and_made_again_where_damaged(
    store: IndexStore, embedder: WordEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    expected = make_retriever("lancedb", CORPUS).search_many(QUERIES, k=7)
    embedder.embedded.clear()
    for _ in range(2):
        stored = make_retriever("lancedb", CORPUS).build(store)
        assert stored.search_many(QUERIES, k=7) == expected
    assert sum(text.startswith("T") for text in embedder.embedded) == 300
    entry = store.entries()[0]
    folder = store.root / entry.key
    held = {p for p in folder.rglob("*") if p.is_file() and p.parent != folder}
    assert {folder / name for name in entry.files} == held
    words = next(path for path in sorted(held) if "_indices" in path.parts)
    words.write_bytes(words.read_bytes()[:-1] + b"?")
    with caplog.at_level(logging.WARNING):
        again = make_retriever("lancedb", CORPUS).build(store)
    assert "is made again" in caplog.text
    assert again.search_many(QUERIES, k=7) == expected


def test_a_table_that_is_not_stored_goes_with_its_retriever() -> None:
    made = make_retriever("lancedb", make_corpus(["a b"]), mode="text").build()
    folder = Path(made._table.uri).parent
    assert folder.is_dir()
    del made
    assert not folder.exists()


def test_words_alone_embed_nothing(embedder: WordEmbedder) -> None:
    made = make_retriever("lancedb", CORPUS, mode="text")
    made.search("w1", k=3)
    assert embedder.embedded == []
    assert "embedder" not in made.card()["index"]


def test_without_the_package_it_is_one_line() -> None:
    script = """
import sys
sys.modules["lancedb"] = None
from ragbench.retrievers import Corpus, Passage, make_retriever
try:
    make_retriever("lancedb", Corpus((Passage("p", "T", "x"),)), mode="text").build()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == (
        "MissingExtraError retriever lancedb needs lancedb; run pip install 'ragbench[lance]'\n"
    )
