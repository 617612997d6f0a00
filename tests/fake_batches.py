"""A real HTTP server that speaks the batch interfaces of OpenAI and of Anthropic, and direct calls.

    with BatchServer(lambda hit: "yes") as server:
        lm = batched(make_lm("openai/judge", api_base=server.url))

`script` gives the text of a reply, or a `Spoilt` item. A batch is worked on for `looks` looks at
it. `busy` says which creations (by number, from 1) are refused with HTTP 503 and make none;
`refuse` is why batches of OpenAI fail as a whole.
"""

import json
import re
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fake_server import Hit, anthropic_message, completion
from tests.retrievers.wire import listening

Row = dict[str, Any]


@dataclass(frozen=True)
class Spoilt:
    """An item without a reply: `expired`, `canceled`, or an error of this HTTP status."""

    kind: str


@dataclass
class Made:
    """A batch that the server has made."""

    batch_id: str
    items: list[tuple[str, Row]]
    looks: int
    results: list[Row] = field(default_factory=list)


class BatchServer:
    """The server, listening on a free loopback port between `with` and its end."""

    def __init__(
        self,
        script: Callable[[Hit], str | Spoilt],
        *,
        looks: int = 2,
        busy: Collection[int] = (),
        refuse: str = "",
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

    def reply(self, body: Row, anthropic: bool) -> Row | Spoilt:
        """What the script says to `body`, as a direct call gives it."""
        texts = [body.get("system", ""), *(message["content"] for message in body["messages"])]
        shown = [each if isinstance(each, str) else each[0]["text"] for each in texts]
        self.bodies.append(body)
        said = self.script(hit := Hit(1, "\n".join(shown), body))
        if isinstance(said, Spoilt):
            return said
        hit.prompt_tokens, hit.completion_tokens = len(hit.prompt) // 4, len(said) // 4 + 1
        return (anthropic_message if anthropic else completion)(hit, said)

    def item(self, key: str, body: Row, anthropic: bool) -> Row:
        """The same as a batch gives it."""
        reply = self.reply(body, anthropic)
        if not isinstance(reply, Spoilt):
            answer = {"response": {"status_code": 200, "body": reply}, "error": None}
            result: Row = {"type": "succeeded", "message": reply}
        elif reply.kind.isdigit():
            failed = {"status_code": int(reply.kind), "body": {"error": {"message": "no"}}}
            answer = {"response": failed, "error": {}}
            kind = "invalid_request_error" if reply.kind == "400" else "overloaded_error"
            error = {"type": "error", "error": {"type": kind, "message": "scripted"}}
            result = {"type": "errored", "error": error}
        else:
            answer = {"response": None, "error": {"code": reply.kind, "message": "not in time"}}
            result = {"type": reply.kind}
        return {"custom_id": key} | ({"result": result} if anthropic else answer)

    def look(self, made: Made, anthropic: bool) -> Row:
        """What the client is told of a batch, which comes nearer to its end."""
        made.looks -= 1
        ended, n, failed = made.looks <= 0, len(made.items), bool(self.refuse) and not anthropic
        if ended and not made.results and not failed:
            rows = [self.item(key, body, anthropic) for key, body in made.items]
            made.results = rows[::-1]  # neither keeps the order
        done = len(made.results)
        if anthropic:
            results = f"{self.url}/messages/batches/{made.batch_id}/results"
            counts = {"processing": n - done, "succeeded": done}
            status = "ended" if ended else "in_progress"
            return {"id": made.batch_id, "type": "message_batch", "processing_status": status,
                    "request_counts": counts, "results_url": results}  # fmt: skip
        for kind, good in (("out", True), ("err", False)):
            some = [row for row in made.results if (row["error"] is None) == good]
            self.files[f"{made.batch_id}-{kind}"] = json_lines(some)
        return {
            "id": made.batch_id, "object": "batch",
            "status": ("failed" if failed else "completed") if ended else "in_progress",
            "request_counts": {"total": n, "completed": done, "failed": 0},
            "output_file_id": f"{made.batch_id}-out" if ended else None,
            "error_file_id": f"{made.batch_id}-err" if ended else None,
            "errors": {"data": [{"code": "x", "message": self.refuse}]} if failed else None,
        }  # fmt: skip


def json_lines(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    fake: BatchServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/v1/")
        kind, _, name = re.sub(r"/(content|results)$", "", path).rpartition("/")
        with self.fake.lock:
            if kind == "files":
                return self._send(self.fake.files[name])
            for made in self.fake.batches:
                if made.batch_id == name and path.endswith("/results"):
                    return self._send(json_lines(made.results))
                if made.batch_id == name:
                    return self._send(self.fake.look(made, kind == "messages/batches"))
        self._send({"error": {"message": "no list"}}, 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix("/v1/")
        with self.fake.lock:
            if path == "files":
                return self._upload(raw)
            body, anthropic = json.loads(raw), path.startswith("messages")
            if path.endswith("batches"):
                return self._create(body, anthropic)
            self.fake.direct += 1
            reply = self.fake.reply(body, anthropic)
            assert not isinstance(reply, Spoilt), "a direct call cannot be spoilt"
            return self._send(reply)

    def _upload(self, raw: bytes) -> None:
        head = b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n"
        parts = BytesParser().parsebytes(head + raw).walk()
        content = next(part for part in parts if part.get_filename()).get_payload(decode=True)
        assert isinstance(content, bytes)
        name = f"file-{len(self.fake.files)}"
        self.fake.files[name] = content.decode()
        self._send({"id": name, "object": "file", "purpose": "batch"})

    def _create(self, body: Row, anthropic: bool) -> None:
        fake = self.fake
        fake.creations += 1
        if fake.creations in fake.busy:
            return self._send({"error": {"message": "busy", "type": "overloaded_error"}}, 503)
        if anthropic:
            items = [(row["custom_id"], row["params"]) for row in body["requests"]]
        else:
            rows = list(map(json.loads, fake.files[body["input_file_id"]].splitlines()))
            assert {row["url"] for row in rows} == {body["endpoint"]}
            items = [(row["custom_id"], row["body"]) for row in rows]
        assert items
        assert len({key for key, _ in items}) == len(items)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", key) for key, _ in items)
        made = Made(f"batch-{len(fake.batches)}", items, fake.looks + 1)
        fake.batches.append(made)
        self._send(fake.look(made, anthropic))

    def _send(self, reply: Row | str, status: int = 200) -> None:
        payload = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *args: Any) -> None:
        pass
