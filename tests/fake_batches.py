"""A real HTTP server that speaks the batch interfaces of OpenAI and of Anthropic, and direct calls.

    with BatchServer(lambda ask: "yes") as server:
        lm = batched(make_lm("openai/judge", api_base=server.url))

`script` gives the text of a reply, or a `Spoilt` item. A batch is worked on for `looks` looks at
it. `busy` says which creations (by number, from 1) are refused with HTTP 503 and make none.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Spoilt:
    """An item without a reply: `expired`, `canceled`, or an error of this HTTP status."""

    kind: str


@dataclass(frozen=True)
class Ask:
    """One request as the server saw it: its text, its body, and how often it came before."""

    prompt: str
    body: dict[str, Any]
    times: int
    direct: bool


Script = Callable[[Ask], "str | Spoilt"]


@dataclass
class Made:
    """A batch that the server has made."""

    batch_id: str
    items: list[tuple[str, dict[str, Any]]]
    looks: int
    refused: str
    created: float = field(default_factory=time.time)
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether it was looked at often enough."""
        return self.looks <= 0


class BatchServer:
    """The server, listening on a free loopback port between `with` and its end."""

    def __init__(
        self,
        script: Script,
        *,
        looks: int = 2,
        busy: Collection[int] = (),
        refuse: str = "",
    ) -> None:
        self.script, self.looks, self.busy, self.refuse = script, looks, busy, refuse
        self.batches: list[Made] = []
        self.files: dict[str, str] = {}
        self.bodies: list[dict[str, Any]] = []  # of every item and direct call
        self.direct = self.creations = 0
        self.lock = threading.RLock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.fake = self  # type: ignore[attr-defined]

    @property
    def url(self) -> str:
        """Base address for `api_base`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def items(self) -> int:
        """Items of all batches."""
        return sum(len(made.items) for made in self.batches)

    def __enter__(self) -> "BatchServer":
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def reply(self, body: dict[str, Any], *, direct: bool) -> str | Spoilt:
        """What the script says to `body`."""
        texts = [str(body.get("system", "")), *(_text(m["content"]) for m in body["messages"])]
        self.direct += direct
        self.bodies.append(body)
        return self.script(Ask("\n".join(texts), body, self.bodies.count(body) - 1, direct))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def fake(self) -> BatchServer:
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/v1/")
        with self.fake.lock:
            if path == "models":
                return self._send(404, {"error": {"message": "no list"}})
            if found := re.fullmatch(r"files/(.+)/content", path):
                return self._raw(self.fake.files[found[1]])
            if found := re.fullmatch(r"messages/batches/(.+)/results", path):
                made = self._batch(found[1])
                return self._raw("".join(json.dumps(row) + "\n" for row in made.results))
            anthropic = path.startswith("messages/")
            shape = _anthropic_shape if anthropic else _openai_shape
            made = self._batch(path.rpartition("/")[2])
            made.looks -= 1
            if made.ended and not made.results and not made.refused:
                self._work(made, anthropic)
            return self._send(200, shape(made, self.fake.url))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix("/v1/")
        with self.fake.lock:
            if path == "files":
                return self._upload(raw)
            body = json.loads(raw)
            if path in ("batches", "messages/batches"):
                return self._create(body, anthropic=path.startswith("messages"))
            text = self.fake.reply(body, direct=True)
            assert isinstance(text, str), "a direct call cannot be spoilt"
            shape = _message if path == "messages" else _completion
            return self._send(200, shape(body, text))

    def _upload(self, raw: bytes) -> None:
        head = b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n"
        for part in BytesParser().parsebytes(head + raw).walk():
            if part.get_filename():
                name = f"file-{len(self.fake.files)}"
                content = part.get_payload(decode=True)
                assert isinstance(content, bytes)
                self.fake.files[name] = content.decode()
                return self._send(200, {"id": name, "object": "file", "bytes": len(content),
                                        "created_at": int(time.time()), "filename": "x",
                                        "purpose": "batch", "status": "processed"})  # fmt: skip
        raise AssertionError("no file in the upload")

    def _create(self, body: dict[str, Any], *, anthropic: bool) -> None:
        fake = self.fake
        fake.creations += 1
        if fake.creations in fake.busy:
            return self._send(503, {"error": {"message": "busy", "type": "overloaded_error"}})
        if anthropic:
            items = [(row["custom_id"], row["params"]) for row in body["requests"]]
        else:
            lines = map(json.loads, fake.files[body["input_file_id"]].splitlines())
            rows = [line for line in lines if line["url"] == body["endpoint"]]
            items = [(row["custom_id"], row["body"]) for row in rows]
        assert items
        assert len({key for key, _ in items}) == len(items)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", key) for key, _ in items)
        made = Made(f"batch-{len(fake.batches)}", items, fake.looks, fake.refuse)
        fake.batches.append(made)
        shape = _anthropic_shape if anthropic else _openai_shape
        return self._send(200, shape(made, fake.url))

    def _work(self, made: Made, anthropic: bool) -> None:
        make = _anthropic_row if anthropic else _openai_row
        rows = [make(key, body, self.fake.reply(body, direct=False)) for key, body in made.items]
        made.results = rows[::-1]  # neither keeps the order
        if not anthropic:
            good = [
                row for row in made.results if (row["response"] or {}).get("status_code") == 200
            ]
            bad = [row for row in made.results if row not in good]
            for kind, some in (("out", good), ("err", bad)):
                text = "".join(json.dumps(row) + "\n" for row in some)
                self.fake.files[f"{made.batch_id}-{kind}"] = text

    def _batch(self, batch_id: str) -> Made:
        return next(made for made in self.fake.batches if made.batch_id == batch_id)

    def _send(self, status: int, data: dict[str, Any]) -> None:
        self._raw(json.dumps(data), status)

    def _raw(self, text: str, status: int = 200) -> None:
        payload = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _sizes(body: dict[str, Any], text: str) -> tuple[int, int]:
    return -(-len(json.dumps(body["messages"])) // 4), -(-len(text) // 4)


def _completion(body: dict[str, Any], text: str) -> dict[str, Any]:
    sent, got = _sizes(body, text)
    message = {"role": "assistant", "content": text}
    return {
        "id": "c", "object": "chat.completion", "created": 0, "model": body["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got},
    }  # fmt: skip


def _message(body: dict[str, Any], text: str) -> dict[str, Any]:
    sent, got = _sizes(body, text)
    return {
        "id": "m", "type": "message", "role": "assistant", "model": body["model"],
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": sent, "output_tokens": got},
    }  # fmt: skip


def _openai_row(key: str, body: dict[str, Any], reply: str | Spoilt) -> dict[str, Any]:
    row: dict[str, Any] = {"id": f"r-{key}", "custom_id": key, "response": None, "error": None}
    if isinstance(reply, str):
        done = {"status_code": 200, "request_id": "q", "body": _completion(body, reply)}
        return {**row, "response": done}
    if reply.kind.isdigit():
        error = {"error": {"message": "scripted", "type": "scripted"}}
        return {
            **row,
            "response": {"status_code": int(reply.kind), "request_id": "q", "body": error},
        }
    return {**row, "error": {"code": f"batch_{reply.kind}", "message": "not done in time"}}


def _anthropic_row(key: str, body: dict[str, Any], reply: str | Spoilt) -> dict[str, Any]:
    if isinstance(reply, str):
        return {"custom_id": key, "result": {"type": "succeeded", "message": _message(body, reply)}}
    if not reply.kind.isdigit():
        return {"custom_id": key, "result": {"type": reply.kind}}
    kind = {"400": "invalid_request_error", "529": "overloaded_error"}.get(reply.kind, "api_error")
    error = {"type": "error", "error": {"type": kind, "message": "scripted"}, "request_id": None}
    return {"custom_id": key, "result": {"type": "errored", "error": error}}


def _openai_shape(made: Made, url: str) -> dict[str, Any]:
    status = "in_progress" if not made.ended else "failed" if made.refused else "completed"
    done = made.ended and not made.refused
    errors = {"object": "list", "data": [{"code": "x", "message": made.refused}]}
    return {
        "id": made.batch_id, "object": "batch", "endpoint": "/v1/chat/completions",
        "completion_window": "24h", "created_at": int(made.created), "status": status,
        "input_file_id": "file",
        "request_counts": {"total": len(made.items), "completed": len(made.items) * made.ended,
                           "failed": 0},
        "output_file_id": f"{made.batch_id}-out" if done else None,
        "error_file_id": f"{made.batch_id}-err" if done else None,
        "errors": errors if made.ended and made.refused else None,
    }  # fmt: skip


def _anthropic_shape(made: Made, url: str) -> dict[str, Any]:
    kinds = {"succeeded": 0, "errored": 0, "expired": 0, "canceled": 0}
    for row in made.results:
        kinds[row["result"]["type"]] += 1
    when = datetime.fromtimestamp(made.created, UTC).isoformat()
    return {
        "id": made.batch_id, "type": "message_batch", "archived_at": None,
        "cancel_initiated_at": None, "created_at": when, "expires_at": when,
        "ended_at": when if made.ended else None,
        "processing_status": "ended" if made.ended else "in_progress",
        "request_counts": {**kinds, "processing": len(made.items) - len(made.results)},
        "results_url": f"{url}/messages/batches/{made.batch_id}/results" if made.ended else None,
    }  # fmt: skip
