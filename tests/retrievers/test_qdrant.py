"""Qdrant against bm25, dense and hybrid, and servers that are of no use."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ragbench.errors import ConfigError, DataError, LMSetupError, LMUnavailableError
from ragbench.lms.calls import Caller
from ragbench.retrievers import Corpus, make_retriever
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import WordEmbedder, make_corpus, random_texts
from tests.retrievers.wire import Wire, serving

CORPUS = make_corpus(random_texts(300, seed=41, vocabulary=400))
QUERIES = random_texts(25, seed=42, vocabulary=400, length=5)
KEY = "canary 9f3a harbour"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other without a wait."""
    monkeypatch.setattr(Caller, "base_s", 0.0)
    monkeypatch.setenv("QDRANT_API_KEY", KEY)


class Qdrant:
    """Qdrant's REST routes that are used, answered by the vendor's engine in memory.

    It is no Qdrant server: what one does with a request, such as its graph of vectors, is not in
    it. A test may put faults in front of it, by path.
    """

    wire: Wire
    url: str

    def __init__(self) -> None:
        client = pytest.importorskip("qdrant_client", reason="Qdrant's client is not installed")
        self.engine, self.models = client.QdrantClient(":memory:"), client.models
        self.fault: Callable[[str], Any] = lambda path: None

    def __call__(self, path: str, body: Any) -> Any:
        path = path.partition("?")[0]
        return self.fault(path) or (200, {"result": self.result(path, body), "time": 0.0})

    def result(self, path: str, body: Any) -> Any:
        name, _, route = path.removeprefix("/collections/").partition("/")
        match route:
            case "exists":
                return {"exists": self.engine.collection_exists(name)}
            case "":
                asked = self.models.CreateCollection(**body)
                words = asked.sparse_vectors
                return self.engine.create_collection(name, asked.vectors or {}, words)
            case "points":
                self.engine.upsert(name, [self.models.PointStruct(**one) for one in body["points"]])
                return {"operation_id": 0, "status": "completed"}
            case "points/count":
                return {"count": self.engine.count(name, exact=body["exact"]).count}
            case "points/query/batch":
                for one in body["searches"]:
                    one.pop("params", None)  # the engine warns of what has no effect in it
                asked_for = [self.models.QueryRequest(**one) for one in body["searches"]]
                found = self.engine.query_batch_points(name, asked_for)
                return [one.model_dump(mode="json") for one in found]

    def sent(self) -> int:
        """How many points were sent."""
        return sum(len(body["points"]) for body in self.wire.requests if body and "points" in body)


@pytest.fixture
def server() -> Iterator[Qdrant]:
    server = Qdrant()
    with serving(server, {"Location": "/"}) as server.wire:
        server.url = server.wire.address.removesuffix("/v1")
        yield server


def failed(status: int, why: str = "scripted") -> tuple[int, Any]:
    """An error as Qdrant words it."""
    return status, {"status": {"error": why}, "time": 0.0}


def test_both_sides_are_ranked_as_here_and_fused(
    server: Qdrant, store: IndexStore, embedder: WordEmbedder
) -> None:
    bm25 = {"k1": 1.2, "b": 0.75, "title_weight": 3}
    made = make_retriever("qdrant", CORPUS, url=server.url, **bm25).build(store)
    alone = {0.0: make_retriever("bm25", CORPUS, **bm25), 1.0: make_retriever("dense", CORPUS)}
    sparse = "bm25(k1=1.2,b=0.75,title_weight=3)"
    embedder.embedded.clear()
    for weight, fusion in ((0.0, "minmax"), (0.3, "minmax"), (0.3, "rrf"), (1.0, "minmax")):
        given = {"rrf_k": 10, "dense_weight": weight, "depth": 20, "fusion": fusion}
        found = make_retriever("qdrant", CORPUS, url=server.url, **bm25, **given).build(store)
        expected = make_retriever("hybrid", CORPUS, sparse=sparse, **given)
        for query in [*QUERIES, "unknown"]:
            mine = {hit.pid: hit.score for hit in found.search(query, k=15)}
            theirs = {hit.pid: hit.score for hit in expected.search(query, k=15)}
            assert mine == pytest.approx(theirs, abs=1e-5, rel=1e-3)
            if weight in alone and query.strip():
                ranked = [hit.pid for hit in alone[weight].search(query, k=3)]
                assert [*mine][: len(ranked)] == ranked
    assert made.search(" ", k=3) == []


def test_qdrant_in_the_distractor_setting_or_without_a_server_is_refused() -> None:
    corpus = Corpus(CORPUS.passages, contexts={"q": (0, 1)})
    with pytest.raises(ConfigError, match="use --setting pooled"):
        make_retriever("qdrant", corpus, url="http://x:1", setting="distractor").build()
    with pytest.raises(ConfigError, match="needs a server"):
        make_retriever("qdrant", CORPUS)


def test_a_collection_is_found_again_and_filled_again_where_points_are_gone(
    server: Qdrant, store: IndexStore
) -> None:
    def made(at: IndexStore | None = store) -> Any:
        return make_retriever("qdrant", CORPUS, url=server.url).build(at)

    first = made()
    expected, facts = first.search_many(QUERIES, k=7), first.card()["index"]
    assert facts["server"] == server.url
    sent = server.sent()
    assert made(None).search_many(QUERIES, k=7) == expected  # as on another machine
    assert server.sent() == sent == 300
    server.engine.delete(facts["collection"], [5, 6, 7], wait=True)
    assert made().search_many(QUERIES, k=7) == expected
    server.engine.delete_collection(facts["collection"])
    assert made().search_many(QUERIES, k=7) == expected
    server.engine.upsert(facts["collection"], [server.models.PointStruct(id=600, vector={})])
    with pytest.raises(DataError, match="has 301 points for 300 passages; delete it there"):
        made()


@pytest.mark.parametrize("call", [2, 5])
def test_a_killed_build_goes_on_and_embeds_nothing_twice(
    call: int, server: Qdrant, store: IndexStore, embedder: WordEmbedder
) -> None:
    server.fault = lambda path: failed(403) if len(server.wire.requests) > call else None
    with pytest.raises(LMSetupError, match="HTTP 403"):
        make_retriever("qdrant", CORPUS, url=server.url).build(store)
    server.fault = lambda path: None
    made = make_retriever("qdrant", CORPUS, url=server.url).build(store)
    assert server.engine.count(made.facts()["collection"]).count == 300
    assert sum(text.startswith("T") for text in embedder.embedded) == 300
    expected = make_retriever("hybrid", CORPUS).search_many(QUERIES, k=7)
    assert made.search_many(QUERIES, k=7) == expected


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (failed(401), LMSetupError, "refuses the key: HTTP 401, .*valid one in QDRANT_API_KEY"),
        (failed(500), LMUnavailableError, "failed again and again: HTTP 500, scripted"),
        (failed(302), LMSetupError, "HTTP 302: the server redirects, and keys are not sent on"),
        ((200, b"<html>"), LMUnavailableError, "unreadable reply"),
        ((200, {"title": "qdrant", "version": "1"}), LMSetupError, "as Qdrant does"),
    ],
)
def test_qdrant_if_the_server_is_unusable_has_a_one_line_error(
    server: Qdrant, fault: tuple[int, Any], kind: type[Exception], said: str
) -> None:
    server.fault = lambda path: fault
    with pytest.raises(kind, match=said) as error:
        make_retriever("qdrant", CORPUS, url=server.url).build()
    assert "\n" not in str(error.value)
    assert server.url.removeprefix("http://") in str(error.value)


@pytest.mark.parametrize(
    "rankings",
    [
        [],  # fewer than searches
        [[{"id": 600, "version": 0, "score": 1.0}]],
        [[{"id": 1, "version": 0, "score": float("nan")}]],
        [[{"id": 1, "version": 0, "score": 1.0}] * 2],
    ],
)
def test_qdrant_if_the_reply_is_invalid_has_no_ranking(server: Qdrant, rankings: Any) -> None:
    retriever = make_retriever("qdrant", CORPUS, url=server.url).build()
    body = {"result": [{"points": points} for points in rankings]}
    server.fault = lambda path: (200, body) if path.endswith("/query/batch") else None
    with pytest.raises(LMSetupError, match="does not answer as Qdrant does"):
        retriever.search("w1", k=3)


@pytest.mark.parametrize("url", ["127.0.0.1:6333", "http://u:p@x:6333", "http://x:6333?api_key=1"])
def test_an_address_that_is_none_or_holds_a_key_is_refused(url: str) -> None:
    with pytest.raises(LMSetupError, match=r"^(malformed url|url holds a password or a key);"):
        make_retriever("qdrant", CORPUS, url=url)


def test_the_key_goes_to_the_server_and_nowhere_else(
    server: Qdrant, store: IndexStore, caplog: pytest.LogCaptureFixture
) -> None:
    retriever: Any = make_retriever("qdrant", CORPUS, url=server.url).build(store)
    retriever.search("w1", k=3)
    assert {*server.wire.keys} == {KEY}
    server.fault = lambda path: failed(400, f"the key {KEY} is bad")
    with pytest.raises(LMSetupError, match=r"the key \[QDRANT_API_KEY\] is bad") as error:
        retriever.search("w2", k=3)
    kept = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    for text in (str(retriever.card()), str(error.value), caplog.text, kept.decode("latin1")):
        assert KEY not in text
