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
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Fault:
    """An answer that goes wrong; `seconds` is for `hang`, `retry_after` for 429 and 503.

    `filter` is a refusal by a content filter that is billed, `filter_400` one that is not; `drip`
    is a reply that never ends, `frames` and `headers` one that never begins, `interim` a good one
    after replies 100 and 103. `json` is sent beside an error, by `body` as the whole reply with
    status 200, and by `changed` in the place of the same keys of a good reply.
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


class FakeServer:
    """The server, listening on a free loopback port between `with` and its end.

    `models` are those it lists, `key` is the only one it takes, `cuts` lets a reply end at the
    length that was asked for.
    """

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
        self.script, self.latency_s, self.models, self.key = script, latency_s, models, key
        self.characters_per_token, self.cuts = characters_per_token, cuts
        self.hits: list[Hit] = []
        self._lock, self.closing = threading.Lock(), threading.Event()
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

    def __enter__(self) -> FakeServer:
        threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: dict[str, Any], key: str) -> tuple[Hit, str | Calls | Fault]:
        messages = body.get("messages") or []
        prompt = "\n\n".join(str(message.get("content")) for message in messages)
        with self._lock:
            hit = Hit(len(self.hits) + 1, prompt, body, key)
            self.hits.append(hit)
        if self.latency_s:
            self.closing.wait(self.latency_s)
        reply = self.script(hit) if self.key in (None, key) else Fault("401")
        most = 4 * int(body.get("max_tokens") or 0) if self.cuts else 0
        if isinstance(reply, str) and 0 < most < len(reply):
            reply, hit.cut = reply[:most], True
        hit.outcome = reply.kind if isinstance(reply, Fault) else "ok"
        if isinstance(reply, Fault) and reply.kind == "hang":
            self.closing.wait(reply.seconds)
        if hit.outcome in ("ok", "filter"):
            said = "" if hit.outcome == "filter" else str(reply)
            hit.prompt_tokens, hit.completion_tokens = (
                math.ceil(len(text) / self.characters_per_token) for text in (prompt, said)
            )
        return hit, reply


#: Longer than what is read of a reply.
_HUGE = 17 * 2**20
#: Kind of fault -> how the reply begins, and the byte that goes on for ever.
_ENDLESS = {
    "drip": (b"Content-Length: 1000000\r\n\r\n", b" "),
    "frames": (b"Transfer-Encoding: chunked\r\n\r\n1", b";"),
    "headers": (b"X-Slow: ", b"x"),
}
_OVERFLOW = {
    "code": 400, "type": "exceed_context_size_error",
    "message": "request (20030 tokens) exceeds the available context size (8192 tokens)",
}  # fmt: skip
_FILTERED = {"code": "content_filter", "message": "filtered", "type": "invalid"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Otherwise each reply waits 40 ms for the client to acknowledge its headers.
    disable_nagle_algorithm = True

    @property
    def fake(self) -> FakeServer:
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        listed = {"object": "list", "data": [{"id": name} for name in self.fake.models]}
        none = {"error": {"message": "no list", "type": "not_found"}}
        self._send(200, listed) if self.fake.models else self._send(404, none)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        hit, reply = self.fake.answer(body, key)
        if isinstance(reply, Fault):
            return self._fail(reply, hit)
        wire = anthropic_message if self.path.endswith("/messages") else completion
        if body.get("stream"):
            return self._stream(completion(hit, reply))
        self._send(200, wire(hit, reply))

    def _fail(self, fault: Fault, hit: Hit) -> None:
        kind = fault.kind
        whole = completion(hit, plausible(hit))
        if kind.isdigit():
            message = "Loading model" if kind == "503" else f"scripted {kind}"
            error = {"message": message, "type": "scripted", "code": None}
            wait = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            headers = {**wait, **dict(fault.headers)}
            return self._send(int(kind), {"error": error, **fault.json}, headers)
        if kind in ("overflow", "filter_400"):
            return self._send(400, {"error": _OVERFLOW if kind == "overflow" else _FILTERED})
        if kind == "filter":
            whole["choices"][0] |= {"finish_reason": "content_filter"}
            whole["choices"][0]["message"]["content"] = ""
        replies = {
            "filter": whole, "body": fault.json, "wrong": {"choices": "none"},
            "changed": {**whole, **fault.json},
        }  # fmt: skip
        if kind in replies:
            return self._send(200, replies[kind])
        self._break(kind, json.dumps(completion(hit, "half an answer")).encode())

    def _break(self, kind: str, whole: bytes) -> None:
        """Send something that is no reply, and close the connection."""
        self.close_connection = True
        if kind in _ENDLESS:
            head, byte = _ENDLESS[kind]
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)
            while not self.fake.closing.wait(0.05):  # until nobody listens
                self.wfile.write(byte)
            return
        if kind == "interim":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
        half = whole[: len(whole) // 2]
        sent = {
            "truncated": half, "html": b"<html>Bad gateway</html>", "empty": b"",
            "non_utf8": whole.replace(b"half", b"\xff\xfe\x80", 1), "interim": whole,
            "huge": b" " * _HUGE + whole,
        }  # fmt: skip
        if kind in sent:
            return self._raw(sent[kind], len(sent[kind]), headers={"Connection": "close"})
        if kind == "reset_body":
            self._raw(half, len(whole))
        # reset, or the end of a hang: the other side sees the connection die
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def _stream(self, whole: dict[str, Any]) -> None:
        """Send a reply word by word."""
        message = whole["choices"][0].pop("message")
        deltas = [{"content": word} for word in re.findall(r"\s*\S+", message["content"])]
        events: list[dict[str, Any]] = [
            {**whole, "usage": None, "choices": [{"index": 0, "delta": delta}]}
            for delta in [{"role": "assistant"}, *deltas]
        ]
        whole["choices"][0]["delta"] = {}
        texts = [*map(json.dumps, [*events, whole]), "[DONE]"]
        payload = "".join(f"data: {text}\n\n" for text in texts).encode()
        self._raw(payload, len(payload), headers={"Content-Type": "text/event-stream"})

    def _send(
        self, status: int, data: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        payload = json.dumps(data).encode()
        self._raw(
            payload, len(payload), status, {"Content-Type": "application/json", **(headers or {})}
        )

    def _raw(
        self, payload: bytes, length: int, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def handle(self) -> None:
        # The client went away, or a fault closed the connection.
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def completion(hit: Hit, reply: str | Calls) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply}
    ended = "length" if hit.cut else "stop"
    if isinstance(reply, Calls):
        calls = [
            {"id": f"c{hit.number}-{n}", "type": "function"}
            | {"function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(reply.calls)
        ]
        message |= {"content": reply.text or None, "tool_calls": calls}
        ended = "tool_calls"
    usage = {"prompt_tokens": hit.prompt_tokens, "completion_tokens": hit.completion_tokens}
    return {
        "id": f"fake-{hit.number}", "object": "chat.completion",
        "model": hit.body.get("model", "fake"),
        "choices": [{"index": 0, "finish_reason": ended, "message": message}],
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }  # fmt: skip


def anthropic_message(hit: Hit, reply: str | Calls) -> dict[str, Any]:
    """The same as Anthropic's Messages API has it."""
    text, calls = (reply.text, reply.calls) if isinstance(reply, Calls) else (reply, ())
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": f"toolu_{hit.number}_{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {
        "id": f"msg_{hit.number}", "type": "message", "role": "assistant", "content": blocks,
        "model": hit.body.get("model", "fake"), "stop_sequence": None,
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": hit.prompt_tokens, "output_tokens": hit.completion_tokens},
    }  # fmt: skip
