"""A Qdrant server that is down, refuses, hangs, talks nonsense, or holds what it should not."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import DataError, LMSetupError, LMUnavailableError
from ragbench.lms.calls import Retries, services
from ragbench.lms.specs import load_dotenv
from ragbench.retrievers import make_retriever
from ragbench.retrievers.store import IndexStore
from tests.retrievers.conftest import make_corpus, random_texts

pytest.importorskip("qdrant_client", reason="the client of Qdrant is not installed")

from qdrant_client import models

from tests.retrievers.qdrant_wire import QdrantWire, failed, qdrant_wire

CORPUS = make_corpus(random_texts(600, seed=51))
SEARCH = "/points/query/batch"
KEY = "canary 9f3a harbour"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other without a wait."""
    monkeypatch.setattr(services, "Retries", partial(Retries, base_s=0.0))
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)


@pytest.fixture
def wire() -> Iterator[QdrantWire]:
    with qdrant_wire() as running:
        yield running


def made(url: str, **settings: Any) -> Any:
    return make_retriever("qdrant", CORPUS, url=url, **{"mode": "text", **settings})


def always(status: int, body: bytes = b"") -> Callable[[str, str], tuple[int, bytes]]:
    return lambda method, path: (status, body) if body else failed(status)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (always(401), LMSetupError, "refuses the key: HTTP 401, .*takes in QDRANT_API_KEY"),
        (always(403), LMSetupError, "refuses the request: HTTP 403, scripted; check its address"),
        (always(404), LMSetupError, "refuses the request: HTTP 404, scripted; check its address"),
        (always(500), LMUnavailableError, "failed again and again: HTTP 500, scripted"),
        (always(302), LMSetupError, "HTTP 302: the server redirects, and keys are not sent on"),
        (always(200, b"<html>"), LMUnavailableError, "unreadable reply"),
        (always(200, b"[1]"), LMSetupError, "does not answer as Qdrant does"),
        (always(200, b'{"version": 3}'), LMSetupError, "does not answer as Qdrant does"),
        (always(200, b'{"title": "qdrant", "version": "1"}'), LMSetupError, "as Qdrant does"),
    ],
)
def test_a_server_of_no_use_is_told_in_one_line(
    wire: QdrantWire, fault: Any, kind: type[Exception], said: str, store: IndexStore
) -> None:
    wire.fault = fault
    with pytest.raises(kind, match=said) as error:
        made(wire.url).build(store)
    assert "\n" not in str(error.value)
    assert wire.url.removeprefix("http://") in str(error.value)
    wire.fault = lambda method, path: None
    assert made(wire.url).build(store).search("w1", k=3)


NONSENSE = {
    "another passage": b'{"result": [{"points": [{"id": 600, "version": 0, "score": 1.0}]}]}',
    "a name": b'{"result": [{"points": [{"id": "a", "version": 0, "score": 1.0}]}]}',
    "no number": b'{"result": [{"points": [{"id": 1, "version": 0, "score": NaN}]}]}',
    "the same twice": b'{"result": [{"points": ['
    b'{"id": 1, "version": 0, "score": 1.0}, {"id": 1, "version": 0, "score": 1.0}]}]}',
    "too few rankings": b'{"result": []}',
    "no result": b'{"status": "ok"}',
}


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE.keys())
def test_an_answer_that_cannot_be_is_no_ranking(wire: QdrantWire, body: bytes) -> None:
    retriever = made(wire.url).build()
    wire.fault = lambda method, path: (200, body) if path.endswith(SEARCH) else None
    with pytest.raises(LMSetupError, match="does not answer as Qdrant does"):
        retriever.search("w1", k=3)


def test_a_collection_with_other_points_is_left_as_it_is(
    wire: QdrantWire, store: IndexStore
) -> None:
    name = made(wire.url).build().facts()["collection"]
    wire.engine.upsert(name, [models.PointStruct(id=600, vector={})])
    with pytest.raises(DataError, match="has 601 points for 600 passages; delete it there"):
        made(wire.url).build(store)
    assert wire.engine.count(name).count == 601


@pytest.mark.parametrize(
    "url", ["127.0.0.1:6333", "ftp://x", "http://u:p@x:6333", "http://x:6333?api_key=1"]
)
def test_an_address_that_is_none_or_holds_a_key_is_refused(url: str) -> None:
    with pytest.raises(LMSetupError, match=r"^(malformed url|url holds a password or a key);"):
        made(url)


def test_the_key_goes_to_the_server_and_nowhere_else(
    wire: QdrantWire,
    store: IndexStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text(f"QDRANT_API_KEY={KEY}\n")
    monkeypatch.setenv("QDRANT_API_KEY", "")  # restored after
    monkeypatch.delenv("QDRANT_API_KEY")
    load_dotenv(dotenv)
    retriever = made(wire.url).build(store)
    retriever.search("w1", k=3)
    assert {*wire.keys} == {KEY}
    wire.fault = always(400, b'{"status": {"error": "the key %s is bad"}}' % KEY.encode())
    with pytest.raises(LMSetupError, match=r"the key \[QDRANT_API_KEY\] is bad") as error:
        retriever.search("w2", k=3)
    kept = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    for text in (str(retriever.card()), str(error.value), caplog.text, kept.decode("latin1")):
        assert KEY not in text
    assert KEY not in repr(vars(retriever._client))
