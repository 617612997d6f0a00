"""A real HTTP server that speaks the OpenAI chat protocol, with scripted replies and faults.

In a test:

    with FakeServer(lambda hit: Fault("429", retry_after=0.1) if hit.number == 1 else "Paris") as s:
        lm = make_lm("openai/fake", api_base=s.url)

By default it answers every output field of a DSPy prompt with a plausible value.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Fault:
    """An answer that goes wrong; `seconds` is for `hang`, `retry_after` for 429 and 503.

    `filter` is a refusal by a content filter that is billed, `filter_400` one that is not; `drip`
    is a reply that never ends, `frames` and `headers` one that never begins, `interim` a good one
    after replies 100 and 103; `headers` go out with a status, and `json` beside its error. `body`
    is sent with status 200 as it is, `changed` is a good reply with these keys in the place of its
    own.
    """

    kind: str
    retry_after: float | str | None = None
    seconds: float = 30.0
    headers: tuple[tuple[str, str], ...] = ()
    json: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """An answer that asks for tools: name and arguments of each, and the text beside them."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    text: str = ""


@dataclass
class Hit:
    """One request as the server saw it, and what became of it."""

    number: int
    prompt: str
    body: dict[str, Any] = field(repr=False)
    key: str = ""
    at: float = 0.0
    outcome: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


Script = Callable[[Hit], "str | Calls | Fault"]


def plausible(hit: Hit) -> str:
    """An answer that DSPy's JSON and chat adapters can read."""
    schema = (hit.body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema:
        return json.dumps(_of_schema(schema, schema.get("$defs", {})))
    if hit.body.get("tools"):
        return "some answer"
    last = hit.prompt.rpartition("Respond with ")[2]
    fields = [name for name in re.findall(r"`(?:\[\[ ## )?(\w+)(?: ## \]\])?`", last)]
    if "[[ ## " in last:
        sections = [f"[[ ## {name} ## ]]\nsome {name}" for name in fields if name != "completed"]
        return "\n\n".join([*sections, "[[ ## completed ## ]]"])
    return json.dumps({name: f"some {name}" for name in fields})


class FakeServer:
    """The server, listening on a free loopback port between `with` and its end."""

    def __init__(
        self,
        script: Script = plausible,
        *,
        latency_s: float = 0.0,
        port: int = 0,
        models: tuple[str, ...] = (),
        key: str | None = None,
        characters_per_token: float = 4.0,
        cuts: bool = False,
    ) -> None:
        self.cuts = cuts  # whether a reply ends at the length that was asked for
        self.characters_per_token = characters_per_token
        self.script, self.latency_s, self.models, self.key = script, latency_s, models, key
        self.hits: list[Hit] = []
        self.at_once = 0  # most requests that were open at one moment
        self._open = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _Handler, bind_and_activate=False)
        self._http.daemon_threads = True
        self._http.request_queue_size = 256
        self._http.fake = self  # type: ignore[attr-defined]
        try:
            self._http.server_bind()
        except OSError:
            self._http.server_close()  # a port that is taken leaves no socket behind
            raise
        self._http.server_activate()

    @property
    def url(self) -> str:
        """Base address for `api_base`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def start(self) -> FakeServer:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    __enter__ = start

    def __exit__(self, *error: object) -> None:
        self.stop()

    def answer(self, body: dict[str, Any], key: str) -> tuple[Hit, str | Calls | Fault]:
        messages = body.get("messages") or []
        prompt = "\n\n".join(str(message.get("content")) for message in messages)
        with self._lock:
            hit = Hit(len(self.hits) + 1, prompt, body, key, time.time())
            self.hits.append(hit)
            self._open += 1
            self.at_once = max(self.at_once, self._open)
        try:
            self._closing.wait(self.latency_s) if self.latency_s else None
            reply = self.script(hit)
            most = 4 * int(body.get("max_tokens") or 0) if self.cuts else 0
            if isinstance(reply, str) and 0 < most < len(reply):
                reply, hit.cut = reply[:most], True
            if isinstance(reply, Fault) and reply.kind == "hang":
                hit.outcome = "hang"  # the log may be read before it is over
                self._closing.wait(reply.seconds)
        finally:
            with self._lock:
                self._open -= 1
        if self.key is not None and key != self.key:
            reply = Fault("401")
        if not isinstance(reply, Fault) or reply.kind == "filter":
            hit.prompt_tokens, hit.completion_tokens = (
                math.ceil(len(text) / self.characters_per_token) for text in (prompt, str(reply))
            )
        hit.outcome = reply.kind if isinstance(reply, Fault) else "ok"
        return hit, reply


#: Longer than what is read of a reply.
_HUGE = 17 * 2**20

#: JSON, but not of the protocol.
_UNREADABLE: dict[str, dict[str, Any]] = {
    "wrong": {"choices": "none"},
    "types": {"choices": [{"message": {"role": "assistant", "content": 7}}], "usage": []},
    "no_choices": {"choices": []},
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        names = self.server.fake.models  # type: ignore[attr-defined]
        if not names:
            return self._send(404, {"error": {"message": "no list", "type": "not_found"}})
        self._send(200, {"object": "list", "data": [{"id": name} for name in names]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        hit, reply = self.server.fake.answer(body, key)  # type: ignore[attr-defined]
        if isinstance(reply, Fault):
            return self._fail(reply, hit)
        wire = _anthropic_message if self.path.endswith("/messages") else _completion
        self._send(200, wire(hit, reply))

    def _fail(self, fault: Fault, hit: Hit) -> None:
        if fault.kind == "filter":
            whole = _completion(hit, "")
            whole["choices"][0] |= {"finish_reason": "content_filter"}
            return self._send(200, whole)
        if fault.kind == "body":
            return self._send(200, fault.json)
        if fault.kind == "changed":
            return self._send(200, {**_completion(hit, plausible(hit)), **fault.json})
        if fault.kind in _UNREADABLE:
            return self._send(200, _UNREADABLE[fault.kind])
        if fault.kind in ("overflow", "filter_400"):
            message = "request (20030 tokens) exceeds the available context size (8192 tokens)"
            error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
            if fault.kind == "filter_400":
                error = {"code": "content_filter", "message": "filtered", "type": "invalid"}
            return self._send(400, {"error": error})
        if fault.kind.isdigit():
            loading = fault.kind == "503"
            message = "Loading model" if loading else f"scripted {fault.kind}"
            error = {"message": message, "type": "scripted", "code": None}
            wait = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            reply = {"error": error, **fault.json}
            return self._send(int(fault.kind), reply, {**wait, **dict(fault.headers)})
        self._break(fault, json.dumps(_completion(hit, "half an answer")).encode())

    def _break(self, fault: Fault, whole: bytes) -> None:
        """Send something that is no reply, and close the connection."""
        self.close_connection = True
        half = whole[: len(whole) // 2]
        if fault.kind == "truncated":
            return self._raw(half, len(half))
        if fault.kind == "html":
            return self._raw(b"<html>Bad gateway</html>", 24)
        if fault.kind == "empty":
            return self._raw(b"", 0)
        if fault.kind == "non_utf8":
            return self._raw(whole.replace(b"half", b"\xff\xfe\x80"), len(whole) - 1)
        if fault.kind == "interim":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
            return self._raw(whole, len(whole))
        if fault.kind == "headers":
            return self._headers()
        if fault.kind == "huge":
            return self._raw(b" " * _HUGE + whole, _HUGE + len(whole))
        if fault.kind == "drip":
            return self._drip(half)
        if fault.kind == "frames":
            return self._frames()
        if fault.kind == "reset_body":
            self._raw(half, len(whole))
        # reset, or the end of a hang: the other side sees the connection die
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def _drip(self, payload: bytes) -> None:
        """A byte now and then, until nobody listens or the server is stopped."""
        self._raw(b"", 10**6)
        closing = self.server.fake._closing  # type: ignore[attr-defined]
        for byte in payload + b" " * 10**6:
            if closing.wait(0.05):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()

    def _frames(self) -> None:
        """The frame of a chunk that never comes, until nobody listens or the server is stopped."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1")
        closing = self.server.fake._closing  # type: ignore[attr-defined]
        while not closing.wait(0.05):
            self.wfile.write(b";")

    def _headers(self) -> None:
        """Headers without end, until nobody listens or the server is stopped."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        closing = self.server.fake._closing  # type: ignore[attr-defined]
        while not closing.wait(0.05):
            self.wfile.write(b"x")

    def _send(
        self, status: int, data: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        payload = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _raw(self, payload: bytes, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(payload)
        self.wfile.flush()

    def handle(self) -> None:
        # The client went away, or a fault closed the connection.
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _completion(hit: Hit, reply: str | Calls) -> dict[str, Any]:
    hit.completion_tokens = -(-len(str(reply)) // 4)
    message: dict[str, Any] = {"role": "assistant", "content": reply}
    if isinstance(reply, Calls):
        calls = [
            {"id": f"c{hit.number}-{n}", "type": "function"}
            | {"function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(reply.calls)
        ]
        message = {"role": "assistant", "content": reply.text or None, "tool_calls": calls}
    return {
        "id": f"fake-{hit.number}",
        "object": "chat.completion",
        "model": hit.body.get("model", "fake"),
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls"
                if isinstance(reply, Calls)
                else ("length" if hit.cut else "stop"),
                "message": message,
            }
        ],
        "usage": {
            "prompt_tokens": hit.prompt_tokens,
            "completion_tokens": hit.completion_tokens,
            "total_tokens": hit.prompt_tokens + hit.completion_tokens,
        },
    }


def _anthropic_message(hit: Hit, reply: str | Calls) -> dict[str, Any]:
    """The same as Anthropic's Messages API has it."""
    hit.completion_tokens = -(-len(str(reply)) // 4)
    text, calls = (reply.text, reply.calls) if isinstance(reply, Calls) else (reply, ())
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": f"toolu_{hit.number}_{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {
        "id": f"msg_{hit.number}",
        "type": "message",
        "role": "assistant",
        "model": hit.body.get("model", "fake"),
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": hit.prompt_tokens, "output_tokens": hit.completion_tokens},
    }


def _of_schema(schema: dict[str, Any], definitions: dict[str, Any], name: str = "value") -> Any:
    if "$ref" in schema:
        return _of_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions, name)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _of_schema(schema["anyOf"][0], definitions, name)
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        return {n: _of_schema(s, definitions, n) for n, s in fields.items()}
    if kind == "array":
        return [_of_schema(schema.get("items", {}), definitions, name)]
    return {"integer": 1, "number": 0.5, "boolean": True}.get(str(kind), f"some {name}")
