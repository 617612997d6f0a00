"""A server on this machine that answers as a test's function says; nothing else is mocked."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Path and body (None for a GET) of a request -> status and body of the answer.
Answer = Callable[[str, Any], tuple[int, dict[str, Any] | bytes]]
#: Says at once that it may be asked again at once, so that tests need not wait.
AT_ONCE = {"retry-after-ms": "1"}


@dataclass
class Wire:
    """The running server: its address, and the requests it got."""

    address: str
    requests: list[Any] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def serving(answer: Answer, headers: Mapping[str, str] = AT_ONCE, port: int = 0) -> Iterator[Wire]:
    """Serve `answer` while the block runs, each with `headers`."""
    wire = Wire("")

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"] or 0))
            body = json.loads(sent) if sent else None
            wire.requests.append(body)
            wire.keys.append(self.headers["Authorization"] or self.headers["api-key"])
            status, reply = answer(self.path, body)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            with contextlib.suppress(OSError):  # nobody listens any more
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_PUT = do_POST  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with listening(Handler, port) as address:
        wire.address = f"{address}/v1"
        yield wire


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Answer by `handler` while the block runs; gives the address."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # with 5, a burst of callers is reset before it is heard

    server = Server(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
