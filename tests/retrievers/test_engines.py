"""LanceDB and Qdrant against bm25 and dense: the engines themselves; a server that is of no use.

See `qdrant_wire` for what stands in the place of a server.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ragbench.errors import DataError, LMSetupError, LMUnavailableError, MissingExtraError
from ragbench.lms.calls import Caller
from ragbench.retrievers import make_retriever
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts

pytest.importorskip("qdrant_client", reason="the client of Qdrant is not installed")
pytest.importorskip("lancedb", reason="LanceDB is not installed")
from qdrant_client import models

from tests.retrievers.qdrant_wire import QdrantWire, failed, qdrant_wire

CORPUS = make_corpus(random_texts(300, seed=41, vocabulary=400))
QUERIES = random_texts(25, seed=42, vocabulary=400, length=5)
KEY = "canary 9f3a harbour"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other without a wait."""
    monkeypatch.setattr(Caller, "base_s", 0.0)
    monkeypatch.setenv("QDRANT_API_KEY", KEY)


@pytest.fixture
def wire() -> Iterator[QdrantWire]:
    with qdrant_wire() as running:
        yield running


@pytest.mark.parametrize("spec", ["lancedb", "qdrant", "server"])
def test_both_sides_are_ranked_as_here_and_fused(
    spec: str, wire: QdrantWire, store: IndexStore, embedder: WordEmbedder
) -> None:
    given = {"url": wire.url} if spec == "server" else {}
    name = "qdrant" if spec == "server" else spec
    constants = {"k1": 1.2, "b": 0.75}  # LanceDB's own
    bm25 = {**constants, "title_weight": 1 if spec == "lancedb" else 3}
    given |= {} if spec == "lancedb" else bm25
    sides = {
        mode: make_retriever(name, CORPUS, mode=mode, **given).build(store)
        for mode in ("text", "vector")
    }
    expected = {"text": make_retriever("bm25", CORPUS, **bm25),
                "vector": make_retriever("dense", CORPUS)}  # fmt: skip
    for mode, side in sides.items():
        for query in filter(str.strip, QUERIES):
            mine = {hit.pid: hit.score for hit in side.search(query, k=300)}
            theirs = {hit.pid: hit.score for hit in expected[mode].search(query, k=300)}
            assert mine == pytest.approx(theirs, abs=1e-5, rel=1e-3)
    embedder.embedded.clear()
    for weight in (0.0, 0.3, 1.0):
        fused: dict[str, float] = {}
        for mode, share in (("text", 1 - weight), ("vector", weight)):
            hits = sides[mode].search("w3 w9", k=15) if share else []
            for rank, hit in enumerate(hits, start=1):
                fused[hit.pid] = fused.get(hit.pid, 0) + share / (10 + rank)
        best = sorted(fused.items(), key=lambda item: (-item[1], CORPUS.positions[item[0]]))[:5]
        whole = make_retriever(name, CORPUS, rrf_k=10, dense_weight=weight, depth=3, **given)
        found = whole.build(store).search("w3 w9", k=5)
        assert [(hit.pid, hit.score) for hit in found] == [
            (pid, pytest.approx(score)) for pid, score in best
        ]
    assert not any(text.startswith("T") for text in embedder.embedded), "embedded again"


def test_a_stored_table_is_opened_again_and_made_again_where_damaged(
    store: IndexStore, caplog: pytest.LogCaptureFixture
) -> None:
    expected = make_retriever("lancedb", CORPUS).search_many(QUERIES, k=7)
    for _ in range(2):
        assert make_retriever("lancedb", CORPUS).build(store).search_many(QUERIES, k=7) == expected
    assert "is made again" not in caplog.text
    folder = store.root / store.find("lancedb").key
    words = next(p for p in sorted(folder.rglob("*")) if p.is_file() and "_indices" in p.parts)
    words.write_bytes(words.read_bytes()[:-1] + b"?")
    assert make_retriever("lancedb", CORPUS).build(store).search_many(QUERIES, k=7) == expected
    assert "is made again" in caplog.text


@pytest.mark.parametrize("name", ["lancedb", "qdrant"])
def test_words_alone_embed_nothing_and_a_missing_package_is_one_line(
    name: str, embedder: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_retriever(name, CORPUS, mode="text").search("w1", k=3)
    assert embedder.embedded == []
    package, extra = {"lancedb": ("lancedb", "lance"), "qdrant": ("qdrant_client", "qdrant")}[name]
    monkeypatch.setitem(sys.modules, package, None)
    said = rf"retriever {name} needs {package}; run pip install 'ragbench\[{extra}\]'"
    with pytest.raises(MissingExtraError, match=said):
        make_retriever(name, CORPUS, mode="text").build()


# -- Qdrant on a server


def test_a_collection_is_found_again_and_filled_again_where_points_are_gone(
    wire: QdrantWire, store: IndexStore
) -> None:
    def made(at: IndexStore | None = store) -> Any:
        return make_retriever("qdrant", CORPUS, url=wire.url, mode="text").build(at)

    first = made()
    expected, facts = first.search_many(QUERIES, k=7), first.card()["index"]
    assert (facts["server"], facts["engine"][:7]) == (wire.url, "qdrant ")
    sent = len(wire.uploaded)
    assert made(None).search_many(QUERIES, k=7) == expected  # as on another machine
    assert len(wire.uploaded) == sent == 300
    wire.engine.delete(facts["collection"], [5, 6, 7], wait=True)
    assert made().search_many(QUERIES, k=7) == expected
    wire.engine.delete_collection(facts["collection"])
    assert made().search_many(QUERIES, k=7) == expected
    wire.engine.upsert(facts["collection"], [models.PointStruct(id=600, vector={})])
    with pytest.raises(DataError, match="has 301 points for 300 passages; delete it there"):
        made()


@pytest.mark.parametrize("call", [2, 5])
def test_a_killed_build_goes_on_and_embeds_nothing_twice(
    call: int, wire: QdrantWire, store: IndexStore, embedder: WordEmbedder
) -> None:
    wire.fault = lambda method, path: failed(403) if len(wire.requests) > call else None
    with pytest.raises(LMSetupError, match="HTTP 403"):
        make_retriever("qdrant", CORPUS, url=wire.url).build(store)
    wire.fault = lambda method, path: None
    made = make_retriever("qdrant", CORPUS, url=wire.url).build(store)
    assert wire.engine.count(made.facts()["collection"]).count == 300
    assert sum(text.startswith("T") for text in embedder.embedded) == 300
    expected = make_retriever("qdrant", CORPUS).search_many(QUERIES, k=7)
    assert made.search_many(QUERIES, k=7) == expected


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (failed(401), LMSetupError, "refuses the key: HTTP 401, .*takes in QDRANT_API_KEY"),
        (failed(500), LMUnavailableError, "failed again and again: HTTP 500, scripted"),
        (failed(302), LMSetupError, "HTTP 302: the server redirects, and keys are not sent on"),
        ((200, b"<html>"), LMUnavailableError, "unreadable reply"),
        ((200, b'{"title": "qdrant", "version": "1"}'), LMSetupError, "as Qdrant does"),
    ],
)
def test_a_server_of_no_use_is_told_in_one_line(
    wire: QdrantWire, fault: tuple[int, bytes], kind: type[Exception], said: str
) -> None:
    wire.fault = lambda method, path: fault
    with pytest.raises(kind, match=said) as error:
        make_retriever("qdrant", CORPUS, url=wire.url, mode="text").build()
    assert "\n" not in str(error.value)
    assert wire.url.removeprefix("http://") in str(error.value)


@pytest.mark.parametrize(
    "points",
    [
        [{"id": 600, "version": 0, "score": 1.0}],
        [{"id": 1, "version": 0, "score": float("nan")}],
        [{"id": 1, "version": 0, "score": 1.0}] * 2,
    ],
)
def test_an_answer_that_cannot_be_is_no_ranking(wire: QdrantWire, points: Any) -> None:
    retriever = make_retriever("qdrant", CORPUS, url=wire.url, mode="text").build()
    body = json.dumps({"result": [{"points": points}]}).encode()
    wire.fault = lambda method, path: (200, body) if path.endswith("/query/batch") else None
    with pytest.raises(LMSetupError, match="does not answer as Qdrant does"):
        retriever.search("w1", k=3)


@pytest.mark.parametrize("url", ["127.0.0.1:6333", "http://u:p@x:6333", "http://x:6333?api_key=1"])
def test_an_address_that_is_none_or_holds_a_key_is_refused(url: str) -> None:
    with pytest.raises(LMSetupError, match=r"^(malformed url|url holds a password or a key);"):
        make_retriever("qdrant", CORPUS, url=url)


def test_the_key_goes_to_the_server_and_nowhere_else(
    wire: QdrantWire, store: IndexStore, caplog: pytest.LogCaptureFixture
) -> None:
    retriever: Any = make_retriever("qdrant", CORPUS, url=wire.url, mode="text").build(store)
    retriever.search("w1", k=3)
    assert {*wire.keys} == {KEY}
    wire.fault = lambda method, path: failed(400, f"the key {KEY} is bad")
    with pytest.raises(LMSetupError, match=r"the key \[QDRANT_API_KEY\] is bad") as error:
        retriever.search("w2", k=3)
    kept = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    for text in (str(retriever.card()), str(error.value), caplog.text, kept.decode("latin1")):
        assert KEY not in text
    assert KEY not in repr(vars(retriever._client))
