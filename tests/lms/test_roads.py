"""How a server is reached: headers of a person's own, proxies, certificates, settings not sent."""

import base64
import json
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import LMSetupError
from ragbench.ledger import open_ledger
from ragbench.lms.calls.http import proxy_for
from ragbench.lms.factory import make_lm
from ragbench.lms.headers import checked_headers
from ragbench.redact import redact
from tests.fake_server import FakeServer, Hit, completion
from tests.wire import ask, eval_towns, lm_at


def test_headers_are_sent_and_no_secret_among_them_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_PASS", "hunter2-of-the-gateway")
    with listening() as (address, seen):
        code, text = eval_towns(
            tmp_path, Address(address), 2, "--header", "X-Team=rag", "--header",
            "X-Gateway-Key=env:GATEWAY_PASS",
        )  # fmt: skip
    assert code == 0, text
    assert {headers["x-team"] for headers in seen} == {"rag"}
    assert {headers["x-gateway-key"] for headers in seen} == {"hunter2-of-the-gateway"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert redact("so hunter2-of-the-gateway it is") == "so [GATEWAY_PASS] it is"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Authorization": "Basic abc"}, "env:VARIABLE"),
        ({"X-Api-Key": "abc"}, "env:VARIABLE"),
        ({"Cookie": "a=b"}, "env:VARIABLE"),
        ({"X-Note": "sk-0123456789abcdef"}, "env:VARIABLE"),
        ({"X-Team": "env:NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not set"),
        ({"Host": "evil"}, "cannot be set"),
        ({"X Team": "a"}, "cannot be set"),
        ({"X-Team": "a\nb: c"}, "cannot be sent"),
    ],
)
def test_a_header_that_cannot_be_sent_or_may_not_be_kept_is_one_line(
    headers: dict[str, str], why: str
) -> None:
    with pytest.raises(LMSetupError, match=why) as caught:
        checked_headers(headers)
    assert "\n" not in str(caught.value)


def test_settings_that_are_none_are_not_sent(tmp_path: Path) -> None:
    with FakeServer() as server:
        code, text = eval_towns(
            tmp_path, server, 1, "--temperature", "none", "--reply-tokens", "none"
        )
        assert code == 0, text
        assert not {"temperature", "max_tokens"} & server.hits[0].body.keys()
    for wrong in ("3", "much"):
        with FakeServer() as server:
            code, text = eval_towns(tmp_path / wrong, server, 1, "--temperature", wrong)
            assert (code, server.hits) == (2, [])


class Address:
    """What `eval_towns` needs of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.hits: list[Any] = []


@contextmanager
def listening(
    login: str = "", context: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server of chat completions that notes headers; one that wants `login` is a proxy."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append(headers)
            status = 200
            if login and headers.get("proxy-authorization") != f"Basic {login}":
                status = 407
            answer = completion(Hit(1, "", {}), '[[ ## answer ## ]]\n{"answer": "Paris"}')
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
    try:
        yield f"{scheme}://localhost:{server.server_address[1]}/v1", seen
    finally:
        server.shutdown()
        server.server_close()


def test_the_name_and_password_of_a_proxy_are_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    login = base64.b64encode(b"user:p@ss").decode()
    with listening(login) as (address, seen):
        place = address.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"http://user:p%40ss@{place}")
        monkeypatch.setenv("no_proxy", "")
        lm = make_lm("openai/m", api_base="http://far.example:8000/v1", cache=False, retries=0)
        assert "Paris" in ask(lm)
    assert seen


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("socks5://user:secret@127.0.0.1:1", "socks5 proxy"),
        ("socks5h://127.0.0.1:1", "socks5h proxy"),
        ("socks4://127.0.0.1:1", "socks4 proxy"),
        ("ftp://127.0.0.1", "ftp proxy"),
        ("http://user:secret@host:notaport", "not a proxy address"),
    ],
)
def test_another_proxy_is_refused_in_one_line_without_its_password(
    address: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", address)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(LMSetupError, match=why) as caught:
        proxy_for("http", "far.example")
    assert "secret" not in str(caught.value)
    lm = make_lm("openai/m", api_base="http://far.example/v1", cache=False)
    with pytest.raises(LMSetupError, match=why):
        lm.check()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of localhost that nobody knows, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    made = (folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", made[0], "-keyout",
         made[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


def test_a_certificate_that_nobody_knows_is_refused_until_it_is_trusted(
    certificate: tuple[Path, Path],
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with listening(context=context) as (address, _):
        lm = make_lm("openai/m", api_base=address, cache=False)
        with pytest.raises(LMSetupError, match=r"not trusted.*--ca-file"):
            lm.check()
        with pytest.raises(dspy.LMInvalidRequestError, match="not trusted"):
            lm("Where?")
        trusting = make_lm("openai/m", api_base=address, cache=False, ca_file=certificate[0])
        assert "Paris" in ask(trusting)


def test_a_file_without_certificates_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    for write in (False, True):
        if write:
            path.write_text("none")
        with pytest.raises(LMSetupError, match="does not contain PEM certificates"):
            make_lm("openai/m", ca_file=path)


def test_a_price_for_another_lm_is_its_own(tmp_path: Path) -> None:
    with FakeServer() as server:
        spec = f"openai/judge@{server.url}"
        code, text = eval_towns(
            tmp_path, server, 1, "--price", "in=1,out=1", "--max-cost", 1, "--lm-for",
            f"answer={spec}",
        )  # fmt: skip
        assert (code, server.hits) == (2, [])
        assert f"--price-for {spec}=in=" in text
        code, text = eval_towns(
            tmp_path, server, 1, "--price", "in=1,out=1", "--max-cost", 1, "--lm-for",
            f"answer={spec}", "--price-for", f"{spec}=in=2,out=2",
        )  # fmt: skip
        assert code == 0, text
    assert lm_at(server).pricing.known is False


@pytest.mark.parametrize(
    ("listed", "host", "port", "direct"),
    [
        ("10.0.0.0/8", "10.1.2.3", 80, True),
        ("10.0.0.0/8", "11.1.2.3", 80, False),
        ("192.168.1.7", "192.168.1.7", 80, True),
        ("fd00::/8", "[fd00::1]", 80, True),
        ("llm.example:8080", "llm.example", 8080, True),
        ("llm.example:8080", "llm.example", 443, False),
        (".example.com", "a.example.com", 80, True),
        ("example.com, other", "other", 80, True),
        ("*.example.com", "a.example.com", 80, True),
        ("ample.com", "example.com", 80, False),
        ("*", "example.com", 80, True),
        ("", "example.com", 80, False),
    ],
)
def test_proxy_for_if_no_proxy_lists_the_server_is_none(
    listed: str, host: str, port: int, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", listed)
    assert (proxy_for("http", host, port) is None) == direct


@pytest.mark.parametrize("value", ['"sk-abc"', "'sk-abc'", " sk-abc", "sk-abc ", '"sk-abc'])
def test_key_if_marks_or_blanks_are_around_it_is_refused_without_showing_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(LMSetupError, match="OPENAI_API_KEY has blanks or quotation") as said:
        make_lm("openai/m")
    assert "sk-abc" not in str(said.value)


def test_lm_if_the_server_cuts_prompts_counts_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts: Counter[str] = Counter()
    with FakeServer(characters_per_token=9.0) as server, open_ledger():
        lm = make_lm("openai/fake", api_base=server.url, cache=False)
        with use(replace(current(), counts=counts)):
            for number in range(2):
                lm(f"{number} " + "some words " * 1_600)
            lm("a short one")
    assert counts == {"prompt_cut": 2}
    assert caplog.text.count("seems to cut prompts") == 1
