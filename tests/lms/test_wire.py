"""What a hostile or sick server can do on the wire: no key leaves, and no call hangs."""

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dspy
import pytest

from ragbench.errors import LMSetupError, LMUnavailableError
from ragbench.ledger import open_ledger
from ragbench.lms.calls import Caller, Service, services
from ragbench.lms.factory import make_lm
from ragbench.lms.reply_cache import configure_cache
from tests.fake_server import FakeServer, Fault, Script, plausible
from tests.retrievers.wire import listening
from tests.wire import ask, eval_towns, lm_at

#: One model by the HTTP client, one that LiteLLM reaches by OpenAI's package, one by its own.
SPECS = ["openai/fake", "azure/fake", "mistral/fake"]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "AZURE", "MISTRAL"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-very-secret")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")


def lm_of(spec: str, server: FakeServer, **settings: Any) -> dspy.LM:
    return make_lm(spec, api_base=server.url, cache=False, retries=0, **settings)


@pytest.mark.parametrize("spec", SPECS)
def test_no_key_follows_a_redirect_and_interim_replies_are_passed_over(spec: str) -> None:
    with FakeServer(lambda hit: "the other host's answer") as other:
        away = (("Location", f"{other.url}/chat/completions"),)
        with FakeServer(lambda hit: Fault("307", headers=away)) as server:
            with pytest.raises(dspy.LMError, match="redirects"):
                lm_of(spec, server)("Where?")
            assert len(server.hits) == 1
        assert other.hits == []
    with FakeServer(lambda hit: Fault("interim")) as server, open_ledger() as ledger:
        assert lm_of(spec, server)("Where?") == ["half an answer"]
    assert [call.attempts for call in ledger.calls] == [1]


def test_a_request_for_embeddings_keeps_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "Caller", partial(Caller, retries=0))
    with FakeServer(lambda hit: Fault("drip")) as server:
        at = services.Server("openai", "m", server.url, "OPENAI_API_KEY")
        service = Service("embedder", at, model="m", kind="embed")
        service.begin(timeout=0.5)
        with pytest.raises(LMUnavailableError, match="timed out"):
            service.call("embeddings", {}, ["x"], lambda reply, tokens: (reply, None), 0.0)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        *(("openai/fake", kind) for kind in ("drip", "frames", "headers", "hang", "huge")),
        ("azure/fake", "drip"), ("azure/fake", "huge"), ("mistral/fake", "headers"),
        ("mistral/fake", "hang"),
    ],
)  # fmt: skip
def test_a_reply_is_there_in_time_or_the_call_has_failed(spec: str, kind: str) -> None:
    with FakeServer(lambda hit: Fault(kind)) as server:
        lm = lm_of(spec, server, timeout=0.5)
        start = time.monotonic()
        with pytest.raises(dspy.LMError):
            lm("Where?")
        assert time.monotonic() - start < 15  # the server would go on for minutes


@pytest.mark.parametrize("key", ["sk-\udcff\udcfe", "sk-ключ", "sk-\n"])
def test_a_key_that_cannot_be_sent_is_one_line(
    key: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    code, said = eval_towns(tmp_path, server, 1)
    assert (code, server.hits) == (2, [])
    assert said.startswith("OPENAI_API_KEY holds characters that no key has")


def message(ended: str = "stop", **parts: Any) -> dict[str, Any]:
    """A reply whose only choice has this message."""
    choice = {"index": 0, "finish_reason": ended, "message": {"role": "assistant", **parts}}
    return {"choices": [choice]}


@pytest.mark.parametrize(
    "fault",
    [
        Fault("body", json={"error": "overloaded"}),
        Fault("changed", json={"choices": None}),
        Fault("changed", json={"choices": [{"finish_reason": "stop"}]}),
        Fault("changed", json=message(content=None)),
        Fault("changed", json=message(content=[None, 1])),
        Fault("changed", json=message(content=None, tool_calls=[None])),
        Fault("changed", json=message(content="x", refusal=5)),
        Fault("changed", json=message("error", content="x")),
    ],
)
def test_what_is_no_completion_fails_the_call_is_never_cached_and_is_tried_again(
    fault: Fault, tmp_path: Path
) -> None:
    configure_cache(tmp_path)
    script: Script = lambda hit: fault if hit.number <= 2 else plausible(hit)  # noqa: E731
    with FakeServer(script) as server, open_ledger() as ledger:
        with pytest.raises(dspy.LMServerError):
            ask(lm_at(server, cache=True, retries=0))
        assert ask(lm_at(server, cache=True, retries=1)) == "some answer"
    found = [(call.attempts, call.error) for call in ledger.calls]
    assert found == [(1, "LMServerError"), (2, None)]


@pytest.mark.parametrize(
    "reply", [message(content=None, refusal="I must not."), message("length", content=None)]
)
def test_a_completion_without_a_text_is_one(reply: dict[str, Any]) -> None:
    with FakeServer(lambda hit: Fault("changed", json=reply)) as server, open_ledger() as ledger:
        lm_at(server)("Where?")
    assert [(call.attempts, call.error) for call in ledger.calls] == [(1, None)]


@contextmanager
def raw_server(head: str, body: bytes = b"") -> Iterator[str]:
    """A server that answers everything by this status line with headers, and this body."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))  # or the close is a reset
            self.wfile.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + body)
            self.close_connection = True

        do_GET = do_POST = reply  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with listening(Handler) as address:
        yield f"{address}/v1"


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("HTTP/1.1 308 Moved\r\nLocation: http://127.0.0.1:9/v1/models", b"", "redirects"),
        ("HTTP/1.1 200 OK", b"[" * 200_000, ""),
        ("HTTP/1.1 200 OK", b'{"data": [7]}', ""),
        ("no HTTP at all", b"", "cannot reach"),
    ],
)
def test_the_check_of_models_ends_in_one_line_or_none(head: str, body: bytes, said: str) -> None:
    expected = pytest.raises(LMSetupError, match=f"{said}.*$") if said else nullcontext()
    with raw_server(head, body) as url, expected as caught:
        make_lm("openai/fake", api_base=url, cache=False).check()
    assert caught is None or "\n" not in str(caught.value)


@pytest.mark.parametrize("times", [1, 2])
def test_compression_has_a_bound(times: int) -> None:
    body = b" " * 30_000_000
    for _ in range(times):
        body = gzip.compress(body)
    coding = ", ".join(["gzip"] * times)
    with raw_server(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}", body) as url:
        lm = make_lm("openai/fake", api_base=url, cache=False, retries=0)
        with pytest.raises(dspy.LMTransportError):
            lm("Where?")


@pytest.mark.parametrize("written", ["plain", "json", "url"])
def test_a_key_that_a_server_echoes_leaves_no_trace(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = 'sk-"canary"+/0123456789'
    monkeypatch.setenv("OPENAI_API_KEY", key)
    echoed = {"plain": key, "json": json.dumps(key), "url": quote(key, safe="")}[written]
    configure_cache(tmp_path)
    script = lambda hit: f"[[ ## answer ## ]]\nmy key is {echoed}"  # noqa: E731
    with FakeServer(script, key=key) as server:
        lm = lm_at(server, cache=True)
        assert "[OPENAI_API_KEY]" in ask(lm)
        assert "canary" not in repr(lm) + repr(vars(lm)) + repr(vars(lm.metered.client))
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"canary" not in kept
    with FakeServer(lambda hit: Fault("body", json={"error": {"message": echoed}})) as server:
        with pytest.raises(dspy.LMError) as caught:
            lm_at(server, retries=0)("Where?")
        assert "canary" not in str(caught.value)
