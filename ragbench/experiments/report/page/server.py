"""The page of a folder over HTTP, on this machine alone; it asks for what is new while runs go on.

/               the page
/version        a text that changes when a run has new records
/data           what the page shows, as JSON
/piece/R/N      the traces of piece N of run R
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ragbench.errors import RagbenchError, RunError
from ragbench.experiments.report.page.data import Board, find_runs, make_board, page_data, pieces
from ragbench.experiments.report.page.html import live_page
from ragbench.experiments.store import DATABASE, state_of
from ragbench.logs import fields, get
from ragbench.metrics import get_metric

_log = get(__name__)


class LiveServer(ThreadingHTTPServer):
    """Serves the page of the runs in a folder, made again where any of them has new records."""

    def __init__(self, folder: Path, port: int, metric: str) -> None:
        self._folder, self._metric = folder, metric
        self._lock = threading.Lock()
        self._made: tuple[str, Board, Any] | None = None
        super().__init__(("127.0.0.1", port), _Handler)

    def answer(self, path: str) -> tuple[str, str] | None:
        """Kind and content for a request; None where there is nothing of the sort.

        Raises:
            RagbenchError: there is no run to show.
        """
        name, *rest = path.partition("?")[0].strip("/").split("/")
        if name == "version":
            return "text/plain", version_of(self._folder)
        board, data = self._board()
        if name == "":
            return "text/html", live_page(data)
        if name == "data":
            return "application/json", json.dumps(data, default=str)
        if name == "piece" and len(rest) == 2 and all(each.isdecimal() for each in rest):
            run, number = map(int, rest)
            if run < len(board.runs):
                [piece] = pieces(board.runs[run], board.qids, number)
                return "application/json", json.dumps(piece, default=str)
        return None

    def _board(self) -> tuple[Board, Any]:
        with self._lock:
            version = version_of(self._folder)
            if self._made is None or self._made[0] != version:
                board = make_board([self._folder], self._metric)
                data = page_data(board, title=f"ragbench: {self._folder}", live=True)
                self._made = (version, board, {**data, "version": version})
            return self._made[1:]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away, and one line of anything else."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            _log.warning("a page could not be shown", extra=fields(error=repr(error)))


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        """Answer this machine alone: no other site may read runs by its name."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in ("127.0.0.1", "localhost"):
            return self._send(403, "text/plain", "only on this machine")
        try:
            found = self.server.answer(self.path)
        except RagbenchError as error:
            return self._send(500, "text/plain", str(error))
        return self._send(200, *found) if found else self._send(404, "text/plain", "not found")

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is the user's."""


def version_of(folder: Path) -> str:
    """A text that differs when a run in `folder` has new records.

    Raises:
        RunError: there is no run.
    """
    runs = find_runs([folder])[0]
    return " ".join(f"{run.name}:{state_of(run / DATABASE)}" for run in runs)


def make_server(folder: Path, *, port: int, metric: str) -> LiveServer:
    """A server on 127.0.0.1 of the page of `folder`, not yet serving.

    Raises:
        RunError: no run is there, or the port is taken.
        UnknownNameError: there is no such metric.
    """
    get_metric(metric)
    version_of(folder)
    try:
        return LiveServer(folder, port, metric)
    except OSError as error:
        raise RunError(f"cannot serve on port {port}: {error.strerror}; give --port") from None
