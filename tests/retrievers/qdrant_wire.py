"""Qdrant's REST routes that are used, on loopback, answered by the vendor's engine in memory.

It is no Qdrant server: what a server does with a request, such as its graph of vectors, is not in
it. A test may put faults in front of it.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from qdrant_client import QdrantClient, models

from tests.retrievers.wire import listening

#: Method and path of a request -> status and body in place of the engine's, or None.
Fault = Callable[[str, str], tuple[int, bytes] | None]
VERSION = "0.0.0"


@dataclass
class QdrantWire:
    """The running server: its address, what it was asked, and the engine behind it."""

    engine: QdrantClient
    url: str = ""
    fault: Fault = lambda method, path: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    uploaded: list[int] = field(default_factory=list)  # ids of points, in order
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, body: Any) -> Any:
        """The result of a request, which the engine gives; None where there is no such route."""
        name, _, rest = path.removeprefix("/collections/").partition("/")
        engine = self.engine
        match method, rest:
            case "GET", "exists":
                return {"exists": engine.collection_exists(name)}
            case "GET", "":
                return engine.get_collection(name).model_dump(mode="json")
            case "PUT", "":
                asked = models.CreateCollection(**body)
                return engine.create_collection(
                    name,
                    vectors_config=asked.vectors or {},
                    sparse_vectors_config=asked.sparse_vectors,
                )
            case "PUT", "points":
                points = [models.PointStruct(**point) for point in body["points"]]
                self.uploaded += [point.id for point in points]
                engine.upsert(name, points, wait=True)
                return {"operation_id": 0, "status": "completed"}
            case "POST", "points/count":
                return {"count": engine.count(name, exact=body["exact"]).count}
            case "POST", "points/query/batch":
                asked_for = [models.QueryRequest(**one) for one in body["searches"]]
                for one in asked_for:
                    one.params = None  # the engine warns of what has no effect in it
                found = engine.query_batch_points(name, asked_for)
                return [one.model_dump(mode="json") for one in found]
        return None


@contextmanager
def qdrant_wire(port: int = 0) -> Iterator[QdrantWire]:
    """Serve while the block runs."""
    wire = QdrantWire(QdrantClient(":memory:"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
            path = self.path.partition("?")[0]
            with wire.lock:
                wire.requests.append((self.command, path))
                wire.keys.append(self.headers["api-key"])
            status, content = wire.fault(self.command, path) or self._real(path, body)
            with contextlib.suppress(OSError):  # nobody listens any more
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if 300 <= status < 400:
                    self.send_header("Location", wire.url)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def _real(self, path: str, body: Any) -> tuple[int, bytes]:
            if path == "/":
                about = {"title": "qdrant - vector search engine", "version": VERSION}
                return 200, json.dumps(about).encode()
            with wire.lock:
                try:
                    result = wire.answer(self.command, path, body)
                except ValueError as error:  # of the engine: no such collection, wrong dimension
                    return failed(404 if "not found" in str(error) else 400, str(error))
            if result is None:
                return failed(404, "no such route")
            return 200, json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()

        def log_message(self, *args: object) -> None:
            pass

    with listening(Handler, port) as address:
        wire.url = address
        yield wire


def failed(status: int, why: str = "scripted") -> tuple[int, bytes]:
    """An error as Qdrant words it."""
    return status, json.dumps({"status": {"error": why}, "time": 0.0}).encode()
