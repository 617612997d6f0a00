"""Servers of embeddings and rerankings that reject, fail and go away: calls are governed."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import LMUnavailableError
from ragbench.experiments.store import read_records
from ragbench.ledger import open_ledger
from ragbench.lms.calls import LimitReachedError, Limits, caller as breakers, spending
from ragbench.retrievers import dense
from ragbench.retrievers.embedders import make_embedder
from ragbench.retrievers.embedders.openai import OpenAIEmbedder
from ragbench.retrievers.rerank import HTTPReranker
from ragbench.sqlite_cache import CachedRows
from tests.fake_server import FakeServer
from tests.retrievers.conftest import make_corpus
from tests.retrievers.wire import Answer, Wire, serving
from tests.wire import eval_towns

Reply = tuple[int, dict[str, Any]]
N = 12


def good(path: str, body: dict[str, Any]) -> Reply:
    """What a server of either kind answers."""
    if path.endswith("/rerank"):
        rows = [{"index": i, "relevance_score": i} for i in range(len(body["documents"]))]
        return 200, {"results": rows, "usage": {"total_tokens": 7}}
    vectors = [{"index": i, "embedding": [1.0, i + 1.0]} for i in range(len(body["input"]))]
    return 200, {"data": vectors, "model": "m", "usage": {"prompt_tokens": 7, "total_tokens": 7}}


def bad(status: int, code: str = "") -> Reply:
    return status, {"error": {"message": f"scripted {status}", "code": code}}


def always_bad(path: str, body: dict[str, Any]) -> Reply:
    return bad(500)


@pytest.fixture(params=["embedder", "reranker"])
def asked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What asks the server at an address about a text, without a wait between attempts."""
    monkeypatch.setattr(breakers.Caller, "base_s", 0.0)

    def ask(wire: Wire, text: str) -> None:
        if request.param == "embedder":
            cache = CachedRows(tmp_path / "vectors.sqlite")
            OpenAIEmbedder("m", api_base=wire.address, cache=cache).embed([text])
        else:
            HTTPReranker(wire.address, "m").score(text, list(make_corpus(["one", "two"])))

    return ask


def test_embedder_if_the_server_fails_for_one_text_leaves_it_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakers.Caller, "base_s", 0.0)

    def script(path: str, body: dict[str, Any]) -> Reply:
        return bad(500) if "NaN" in body["input"] else good(path, body)

    with serving(script) as wire, open_ledger():
        embedder = OpenAIEmbedder(
            "m", api_base=wire.address, cache=CachedRows(tmp_path / "v.sqlite")
        )
        vectors = embedder.embed(["NaN", *map(str, range(20))])
    assert not vectors[0].any()
    assert vectors[1:].any(axis=1).all()
    assert "no vector for the text 'NaN'" in caplog.text


def test_service_if_a_reply_is_cut_files_it_as_possibly_billed(asked: Any) -> None:
    paths: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        paths.append(path)
        return (200, b'{"data": [') if len(paths) == 1 else good(path, body)

    with serving(answer) as wire, open_ledger() as ledger:
        asked(wire, "one")
    assert ledger.billed.unanswered == 1
    assert ledger.billed.possible_tokens > 0


def test_service_if_it_keeps_failing_has_a_one_line_error(asked: Any) -> None:
    said = pytest.raises(LMUnavailableError, match="failed again and again: HTTP 500, scripted")
    with serving(always_bad) as wire, open_ledger() as ledger, said:
        asked(wire, "x")
    assert [(call.attempts, call.error) for call in ledger.calls] == [(5, "ServerError")]


def test_limits_count_every_attempt(asked: Any) -> None:
    with serving(always_bad) as wire, spending(Limits(calls=2)) as spent:
        with pytest.raises(LimitReachedError):
            asked(wire, "x")
        assert (spent.total.calls, len(wire.requests)) == (2, 2)


def evaluate(folder: Path, kind: str, wire: Wire, server: FakeServer) -> tuple[int, str]:
    spec = {
        "embedder": f"dense(embedder=openai/m,api_base={wire.address})",
        "reranker": f"rerank(inner=bm25,reranker={wire.address})",
    }[kind]
    return eval_towns(folder, server, N, "--setting", "pooled", "--workers", 4, "--retriever", spec)


def wrong_for(searches: range, reply: Reply) -> Answer:
    """A server that answers well but for these searches, counted from 0; passages do not count."""
    seen, lock = [0], threading.Lock()

    def answer(path: str, body: dict[str, Any]) -> Reply:
        if "query" not in body and not any("Which town" in text for text in body["input"]):
            return good(path, body)
        with lock:
            seen[0] += 1
            return reply if seen[0] - 1 in searches else good(path, body)

    return answer


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(breakers, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(dense, "make_embedder", make_embedder)  # the real one
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "reply", "code", "cause"),
    [
        ("embedder", bad(401), 2, "HTTP 401, scripted 401; give a valid one in RAGB"),
        ("reranker", bad(429, "insufficient_quota"), 4, "demands payment: HTTP 429"),
    ],
)
def test_a_server_that_refuses_all_ends_the_run_and_fails_no_question(
    fresh: Path, kind: str, reply: Reply, code: int, cause: str
) -> None:
    with FakeServer() as server, serving(wrong_for(range(5, 999), reply)) as wire:
        ended, said = evaluate(fresh, kind, wire, server)
        assert ended == code, said
        table, _, error = said.rpartition("\n")
        answered = len(read_records(fresh / "run").finished)
        assert 1 <= answered <= 5
        assert f"{answered} of {N} answered" in table
        assert cause in error
        assert len(read_records(fresh / "run")) == answered, "none failed"
        assert len(server.hits) <= 5, "the LM was paid for questions without passages"
    again = FakeServer(port=port(server.url))
    with again as server, serving(good, port=port(wire.address)) as wire:
        ended, said = evaluate(fresh, kind, wire, server)
        assert ended == 0, said
    assert len(read_records(fresh / "run").finished) == N


def port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def test_an_outage_pauses_the_run_and_fails_no_question(fresh: Path) -> None:
    with FakeServer() as server, serving(wrong_for(range(3, 17), bad(503))) as wire:
        ended, said = evaluate(fresh, "embedder", wire, server)
    assert ended == 0, said
    assert len(read_records(fresh / "run").finished) == N
