"""A real HTTP server that speaks the batch interfaces of OpenAI and of Anthropic, and direct calls.

    with BatchServer(lambda ask: "yes") as server:
        lm = batched(make_lm("openai/judge", api_base=server.url))

`script` gives the text of a reply, or a `Spoilt` item. A batch is worked on for `looks` looks at
it. `busy` says which creations (by number, from 1) are refused with HTTP 503 and make none;
`refuse` is why batches fail as a whole.
"""

import json
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.retrievers.wire import listening

Row = dict[str, Any]


@dataclass(frozen=True)
class Spoilt:
    """An item without a reply: `expired`, `canceled`, or an error of this HTTP status."""

    kind: str


@dataclass(frozen=True)
class Ask:
    """One request as the server saw it: its text and its body."""

    prompt: str
    body: Row


Script = Callable[[Ask], "str | Spoilt"]


@dataclass
class Made:
    """A batch that the server has made."""

    batch_id: str
    items: list[tuple[str, Row]]
    looks: int
    refused: str
    results: list[Row] = field(default_factory=list)


class BatchServer:
    """The server, listening on a free loopback port between `with` and its end."""

    def __init__(
        self, script: Script, *, looks: int = 2, busy: Collection[int] = (), refuse: str = ""
    ) -> None:
        self.script, self.looks, self.busy, self.refuse = script, looks, busy, refuse
        self.batches: list[Made] = []
        self.files: dict[str, str] = {}
        self.bodies: list[Row] = []  # of every item and direct call
        self.direct = self.creations = 0
        self.lock = threading.RLock()
        self._listening = listening(type("Handler", (_Handler,), {"fake": self}))
        self.url = ""

    @property
    def items(self) -> int:
        return sum(len(made.items) for made in self.batches)

    def __enter__(self) -> "BatchServer":
        self.url = f"{self._listening.__enter__()}/v1"
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.__exit__(None, None, None)

    def reply(self, body: Row) -> str | Spoilt:
        """What the script says to `body`."""
        texts = [str(body.get("system", "")), *(_text(m["content"]) for m in body["messages"])]
        self.bodies.append(body)
        return self.script(Ask("\n".join(texts), body))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    fake: BatchServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/v1/")
        with self.fake.lock:
            if path == "models":
                return self._send({"error": {"message": "no list"}}, 404)
            if found := re.fullmatch(r"files/(.+)", path.removesuffix("/content")):
                return self._raw(self.fake.files[found[1]])
            anthropic = path.startswith("messages/")
            name = path.removesuffix("/results").rpartition("/")[2]
            made = next(made for made in self.fake.batches if made.batch_id == name)
            if path.endswith("/results"):
                return self._raw("".join(json.dumps(row) + "\n" for row in made.results))
            made.looks -= 1
            if made.looks <= 0 and not made.results and not made.refused:
                self._work(made, anthropic)
            return self._send(self._shape(made, anthropic))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix("/v1/")
        with self.fake.lock:
            if path == "files":
                return self._upload(raw)
            body = json.loads(raw)
            if path.endswith("batches"):
                return self._create(body, anthropic=path.startswith("messages"))
            self.fake.direct += 1
            text = self.fake.reply(body)
            assert isinstance(text, str), "a direct call cannot be spoilt"
            return self._send((_message if path == "messages" else _completion)(body, text))

    def _upload(self, raw: bytes) -> None:
        head = b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n"
        parts = BytesParser().parsebytes(head + raw).walk()
        content = next(part for part in parts if part.get_filename()).get_payload(decode=True)
        assert isinstance(content, bytes)
        name = f"file-{len(self.fake.files)}"
        self.fake.files[name] = content.decode()
        self._send({"id": name, "object": "file", "purpose": "batch"})

    def _create(self, body: Row, *, anthropic: bool) -> None:
        fake = self.fake
        fake.creations += 1
        if fake.creations in fake.busy:
            return self._send({"error": {"message": "busy", "type": "overloaded_error"}}, 503)
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
        return self._send(self._shape(made, anthropic))

    def _work(self, made: Made, anthropic: bool) -> None:
        make = _anthropic_row if anthropic else _openai_row
        rows = [make(key, body, self.fake.reply(body)) for key, body in made.items]
        made.results = rows[::-1]  # neither keeps the order
        if not anthropic:
            for kind, good in (("out", True), ("err", False)):
                some = [row for row in made.results if (row["error"] is None) == good]
                text = "".join(json.dumps(row) + "\n" for row in some)
                self.fake.files[f"{made.batch_id}-{kind}"] = text

    def _shape(self, made: Made, anthropic: bool) -> Row:
        """What the client reads of a batch."""
        ended, n, done = made.looks <= 0, len(made.items), len(made.results)
        if anthropic:
            status = "ended" if ended else "in_progress"
            results = f"{self.fake.url}/messages/batches/{made.batch_id}/results"
            counts = {"processing": n - done, "succeeded": done}
            return {"id": made.batch_id, "type": "message_batch", "processing_status": status,
                    "request_counts": counts, "results_url": results}  # fmt: skip
        failed = ended and made.refused
        return {
            "id": made.batch_id, "object": "batch",
            "status": "failed" if failed else "completed" if ended else "in_progress",
            "request_counts": {"total": n, "completed": n * ended, "failed": 0},
            "output_file_id": f"{made.batch_id}-out" if ended else None,
            "error_file_id": f"{made.batch_id}-err" if ended else None,
            "errors": {"data": [{"code": "x", "message": made.refused}]} if failed else None,
        }  # fmt: skip

    def _send(self, data: Row, status: int = 200) -> None:
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


def _sizes(body: Row, text: str) -> tuple[int, int]:
    return -(-len(json.dumps(body["messages"])) // 4), -(-len(text) // 4)


def _completion(body: Row, text: str) -> Row:
    sent, got = _sizes(body, text)
    message = {"role": "assistant", "content": text}
    return {
        "id": "c", "object": "chat.completion", "created": 0, "model": body["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got},
    }  # fmt: skip


def _message(body: Row, text: str) -> Row:
    sent, got = _sizes(body, text)
    return {
        "id": "m", "type": "message", "role": "assistant", "model": body["model"],
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": sent, "output_tokens": got},
    }  # fmt: skip


def _openai_row(key: str, body: Row, reply: str | Spoilt) -> Row:
    done: Row | None = None
    error: Row | None = None
    if isinstance(reply, str):
        done = {"status_code": 200, "body": _completion(body, reply)}
    elif reply.kind.isdigit():
        done, error = {"status_code": int(reply.kind), "body": {"error": {"message": "no"}}}, {}
    else:
        error = {"code": f"batch_{reply.kind}", "message": "not done in time"}
    return {"custom_id": key, "response": done, "error": error}


def _anthropic_row(key: str, body: Row, reply: str | Spoilt) -> Row:
    if isinstance(reply, str):
        result: Row = {"type": "succeeded", "message": _message(body, reply)}
    elif reply.kind.isdigit():
        kind = "invalid_request_error" if reply.kind == "400" else "overloaded_error"
        error = {"type": "error", "error": {"type": kind, "message": "scripted"}}
        result = {"type": "errored", "error": error}
    else:
        result = {"type": reply.kind}
    return {"custom_id": key, "result": result}
