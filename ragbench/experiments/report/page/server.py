"""The report of a folder of runs over HTTP, on this machine alone, made again when runs go on."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ragbench.errors import RagbenchError, RunError
from ragbench.experiments.records import CONFIG, RECORDS
from ragbench.experiments.report.page.html import render_page
from ragbench.experiments.runs import reopen
from ragbench.logs import fields, get
from ragbench.metrics import get_metric

_log = get(__name__)


class LiveReport:
    """The page of the runs in a folder, and a version that changes when any of them does."""

    def __init__(self, folder: Path, metric: str) -> None:
        self._folder, self._metric = folder, metric
        self._lock = threading.Lock()
        self._made: tuple[str, str] = ("", "")

    def runs(self) -> list[Path]:
        """The run folders in the folder, or the folder itself where it is one, that have records.

        Raises:
            RunError: there is none.
        """
        places = [self._folder, *sorted(self._folder.glob("*"))]
        runs = [p for p in places if (p / CONFIG).is_file() and (p / RECORDS).is_file()]
        if not runs:
            raise RunError(f"no run in {self._folder}: give a run folder or a folder of them")
        return runs

    def version(self) -> str:
        """A text that differs when a run has new records."""
        states = [(run.name, (run / RECORDS).stat()) for run in self.runs()]
        return " ".join(f"{name}:{state.st_size}:{state.st_mtime_ns}" for name, state in states)

    def page(self) -> str:
        """The page, made again where its version has changed."""
        with self._lock:
            version = self.version()
            if self._made[0] != version:
                evaluations = [reopen(run) for run in self.runs()]
                title = f"ragbench: {self._folder}"
                self._made = (
                    version,
                    render_page(evaluations, metric=self._metric, title=title, live=True),
                )
            return self._made[1]


class _Server(ThreadingHTTPServer):
    """A server that says nothing of a browser that went away, and one line of anything else."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            _log.warning("a page could not be shown", extra=fields(error=repr(error)))


def make_server(folder: Path, *, port: int, metric: str) -> ThreadingHTTPServer:
    """A server on 127.0.0.1 of the report of `folder`, not yet serving.

    Raises:
        RunError: no run is there, or the port is taken.
        UnknownNameError: there is no such metric.
    """
    get_metric(metric)
    live = LiveReport(folder, metric)
    live.runs()
    try:
        return _Server(("127.0.0.1", port), _handler(live))
    except OSError as error:
        raise RunError(f"cannot serve on port {port}: {error.strerror}; give --port") from None


def _handler(live: LiveReport) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers `/` with the page and `/version` with its version."""

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in ("127.0.0.1", "localhost"):  # no other site may read runs by its name
                self._send(403, "text/plain", "only on this machine")
                return
            try:
                if self.path == "/version":
                    self._send(200, "text/plain", live.version())
                elif self.path.partition("?")[0] == "/":
                    self._send(200, "text/html", live.page())
                else:
                    self._send(404, "text/plain", "not found")
            except RagbenchError as error:
                self._send(500, "text/plain", str(error))

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: the terminal is the user's."""

    return Handler
