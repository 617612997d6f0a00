"""LanceDB and Qdrant against bm25, dense and hybrid: the engines themselves, no stand-ins.

See `qdrant_wire` for what stands in the place of a server.
"""

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import LMSetupError, MissingExtraError
from ragbench.retrievers import Retriever, make_retriever
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts

pytest.importorskip("qdrant_client", reason="the client of Qdrant is not installed")
pytest.importorskip("lancedb", reason="LanceDB is not installed")
from qdrant_client import QdrantClient

from tests.retrievers.qdrant_wire import failed, qdrant_wire

CORPUS = make_corpus(random_texts(300, seed=41, vocabulary=400))
QUERIES = random_texts(25, seed=42, vocabulary=400, length=5)


@dataclass
class Place:
    """Where collections are: the address that the retriever is given, and what is asked there."""

    url: str
    engine: QdrantClient | None = None  # of a server
    name: str = "qdrant"

    def make(self, corpus: Any = CORPUS, **settings: Any) -> Any:
        where = {"url": self.url} if self.url else {}
        return make_retriever(self.name, corpus, **where, **settings)


@pytest.fixture(params=["lancedb", "memory", "wire"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param in ("lancedb", "memory"):
        yield Place("", name="lancedb" if request.param == "lancedb" else "qdrant")
    else:
        with qdrant_wire() as wire:
            yield Place(wire.url, wire.engine)


@pytest.fixture
def remote() -> Iterator[Place]:
    with qdrant_wire() as wire:
        yield Place(wire.url, wire.engine)


@pytest.mark.parametrize(
    "settings",
    [{}, {"k1": 1.2, "b": 0.75, "title_weight": 3}, {"stopwords": "none"}],
)
def test_words_are_ranked_as_by_bm25(place: Place, settings: dict[str, Any]) -> None:
    if place.name == "lancedb":  # whose constants are its own
        pytest.skip("see test_lancedb_ranks_words_as_bm25_with_its_constants")
    expected = make_retriever("bm25", CORPUS, **settings).search_many(QUERIES, k=12)
    found = place.make(mode="text", **settings).search_many(QUERIES, k=12)
    _same(found, expected)


def test_vectors_are_ranked_as_by_dense(place: Place) -> None:
    expected = make_retriever("dense", CORPUS).search_many(QUERIES, k=12)
    _same(place.make(mode="vector").search_many(QUERIES, k=12), expected)


def _same(found: Any, expected: Any) -> None:
    assert sum(map(len, expected)) > 100
    for mine, theirs in zip(found, expected, strict=True):
        scores = {hit.pid: hit.score for hit in theirs}
        assert {hit.pid: hit.score for hit in mine} == pytest.approx(scores, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_both_are_fused_by_weighted_reciprocal_ranks(place: Place, weight: float) -> None:
    sides = {mode: place.make(mode=mode).search("w3 w9", k=15) for mode in ("text", "vector")}
    expected: dict[str, float] = {}
    for mode, share in (("text", 1 - weight), ("vector", weight)):
        for rank, hit in enumerate(sides[mode] if share else [], start=1):
            expected[hit.pid] = expected.get(hit.pid, 0) + share / (10 + rank)
    best = sorted(expected.items(), key=lambda item: (-item[1], CORPUS.positions[item[0]]))[:5]
    found = place.make(rrf_k=10, dense_weight=weight, depth=3).search("w3 w9", k=5)
    assert [(hit.pid, hit.score) for hit in found] == [
        (pid, pytest.approx(score)) for pid, score in best
    ]


def test_a_collection_is_found_again_by_this_machine_and_by_others(
    remote: Place, tmp_path: Path, embedder: WordEmbedder
) -> None:
    first = remote.make().build(IndexStore(tmp_path / "a"))
    expected = first.search_many(QUERIES, k=7)
    for folder in ("a", "b"):
        embedder.embedded.clear()
        store = IndexStore(tmp_path / folder)
        again = remote.make().build(store)
        assert again.search_many(QUERIES, k=7) == expected
        assert not any(text.startswith("T") for text in embedder.embedded), "embedded again"
        facts = again.card()["index"]
        assert facts["server"] == remote.url
        assert remote.engine.count(facts["collection"]).count == 300
        assert facts["engine"].startswith("qdrant ")


def test_a_collection_that_was_deleted_is_filled_again(remote: Place, store: IndexStore) -> None:
    made = remote.make(mode="text").build(store)
    expected = made.search_many(QUERIES, k=7)
    name = made.facts()["collection"]
    remote.engine.delete_collection(name)
    assert remote.make(mode="text").build(store).search_many(QUERIES, k=7) == expected
    remote.engine.delete(name, [5, 6, 7], wait=True)  # a hole, which the number alone does not show
    assert remote.make(mode="text").build(store).search_many(QUERIES, k=7) == expected
    assert remote.engine.count(name).count == 300


@pytest.mark.parametrize("call", [2, 5])
def test_a_killed_build_goes_on_and_embeds_nothing_twice(
    call: int, remote: Place, store: IndexStore, embedder: WordEmbedder
) -> None:
    expected = make_retriever("qdrant", CORPUS).search_many(QUERIES, k=7)
    embedder.embedded.clear()
    with qdrant_wire() as wire:
        wire.fault = lambda method, path: failed(403) if len(wire.requests) > call else None
        with pytest.raises(LMSetupError, match="HTTP 403"):
            make_retriever("qdrant", CORPUS, url=wire.url).build(store)
        wire.fault = lambda method, path: None
        made = make_retriever("qdrant", CORPUS, url=wire.url).build(store)
        assert made.search_many(QUERIES, k=7) == expected
        assert wire.engine.count(made.facts()["collection"]).count == 300
    assert sum(text.startswith("T") for text in embedder.embedded) == 300


def test_a_question_s_own_passages_are_searched_in_memory(embedder: WordEmbedder) -> None:
    with qdrant_wire() as wire:
        whole: Retriever = make_retriever("qdrant", CORPUS, url=wire.url)
        found = whole.restrict([5, 9, 2]).search("w0 w1", k=10)
        assert len(embedder.embedded) == 3 + 1
        assert {hit.pid for hit in found} == {"p5", "p9", "p2"}
        assert wire.requests == []


# -- LanceDB


def test_lancedb_ranks_words_as_bm25_with_its_constants() -> None:
    ours = make_retriever("bm25", CORPUS, k1=1.2, b=0.75)
    found = make_retriever("lancedb", CORPUS, mode="text")
    for query in filter(str.strip, QUERIES):
        expected = {hit.pid: hit.score for hit in ours.search(query, k=300)}
        hits = found.search(query, k=300)
        assert {hit.pid: hit.score for hit in hits} == pytest.approx(expected, rel=1e-3)


def test_a_stored_table_is_opened_again_and_made_again_where_damaged(
    store: IndexStore, embedder: WordEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    expected = make_retriever("lancedb", CORPUS).search_many(QUERIES, k=7)
    embedder.embedded.clear()
    for _ in range(2):
        stored = make_retriever("lancedb", CORPUS).build(store)
        assert stored.search_many(QUERIES, k=7) == expected
    assert sum(text.startswith("T") for text in embedder.embedded) == 300
    entry = store.find("lancedb")
    folder = store.root / entry.key
    held = {p for p in folder.rglob("*") if p.is_file() and p.parent != folder}
    assert {folder / name for name in entry.files} == held
    words = next(path for path in sorted(held) if "_indices" in path.parts)
    words.write_bytes(words.read_bytes()[:-1] + b"?")
    with caplog.at_level(logging.WARNING):
        again = make_retriever("lancedb", CORPUS).build(store)
    assert "is made again" in caplog.text
    assert again.search_many(QUERIES, k=7) == expected


@pytest.mark.parametrize("name", ["lancedb", "qdrant"])
def test_words_alone_embed_nothing(name: str, embedder: WordEmbedder) -> None:
    made = make_retriever(name, CORPUS, mode="text")
    made.search("w1", k=3)
    assert embedder.embedded == []
    assert "embedder" not in str(made.card().get("parts"))


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("lancedb", "lancedb", "lance"), ("qdrant", "qdrant_client", "qdrant")],
)
def test_without_the_package_it_is_one_line(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    said = rf"retriever {name} needs {package}; run pip install 'ragbench\[{extra}\]'"
    with pytest.raises(MissingExtraError, match=said):
        make_retriever(name, CORPUS, mode="text").build()
