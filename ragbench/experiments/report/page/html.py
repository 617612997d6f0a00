"""The page as one HTML file, or served on this machine while runs go on.

The file needs nothing beside it and asks the network for nothing. Its content-security policy
allows the scripts and the style in it, named by their hashes, and nothing else; all data is text to
it. A server answers /, /version (a text that changes with the records), /data, and /piece/RUN/N.
"""

import base64
import gzip
import hashlib
import html
import json
import sys
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from ragbench.errors import RagbenchError, RunError
from ragbench.experiments.report.page.board import Board, find_runs, make_board
from ragbench.experiments.report.page.data import page_data, pieces
from ragbench.experiments.report.table import written
from ragbench.experiments.report.tables import run_table
from ragbench.experiments.store import DATABASE, state_of, write_whole
from ragbench.logs import fields, get
from ragbench.metrics import get_metric

#: The style element that Observable Plot puts into every chart, for its class name "chart".
_STYLE_OF_CHARTS = """:where(.chart) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.chart text),
:where(.chart tspan) {
  white-space: pre;
}"""
_log = get(__name__)


def write_page(board: Board, path: Path, *, title: str = "ragbench report") -> int:
    """Write the page of `board` to the file `path`, whole or not at all; its size in bytes."""
    write_whole(path, (text.encode("utf-8", "replace") for text in _parts(board, title)))
    return path.stat().st_size


def page_of(board: Board, *, title: str = "ragbench report") -> str:
    """The page of `board` with all traces in it."""
    return "".join(_parts(board, title))


def page_without_traces(board: Board) -> str:
    """The page of `board` as far as its plots need it."""
    return "".join(_page(page_data(board, title="ragbench report"), [], ""))


def _parts(board: Board, title: str) -> Iterator[str]:
    return _page(page_data(board, title=title), _traces(board), "", _plain(board))


def _traces(board: Board) -> Iterator[str]:
    """A script element for each piece of each run, which is JSON, gzip and base64."""
    qids = board.qids
    for at, run in enumerate(board.runs):
        for number, piece in enumerate(pieces(run, qids)):
            text = piece.encode("utf-8", "replace")
            packed = base64.b64encode(gzip.compress(text, compresslevel=4, mtime=0)).decode()
            kind = f'type="application/octet-stream" id="piece-{at}-{number}"'
            yield f"<script {kind}>{packed}</script>\n"


def _plain(board: Board) -> str:
    """The table and the sentences for a browser that runs no script."""
    firsts = [board.runs[program.runs[0]] for program in board.programs]
    table = written(run_table(firsts, [program.name for program in board.programs]), "html")
    sentences = []
    for artefact in board.artefacts:
        sentences += artefact.get("headlines", {}).values()
    return table + "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)


def _page(data: Any, traces: Iterable[str], also_allowed: str, plain: str = "") -> Iterator[str]:
    """The page in pieces, in their order."""
    assets = resources.files("ragbench.experiments.report.page") / "assets"
    files = ("page.html", "page.css", "vendor/d3.min.js", "vendor/plot.min.js", "page.js")
    page, style, *scripts = (assets.joinpath(name).read_text("utf-8") for name in files)
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(style)} {_hash(_STYLE_OF_CHARTS)}; base-uri 'none'; form-action 'none'"
    )
    # JSON that may stand inside a script element: no tag can begin in it.
    text = json.dumps(data, default=str, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    contents: dict[str, Iterable[str]] = {
        "POLICY": [policy + also_allowed],
        "TITLE": [html.escape(data["title"])],
        "PLAIN": [plain],
        "STYLE": [style],
        "DATA": [text],
        "TRACES": traces,
        "SCRIPTS": [f"<script>{script}</script>" for script in scripts],
    }
    # Cut at all marks at once: what stands in a part is not looked at again.
    for at, between in enumerate(page.split("@@")):
        yield from contents[between] if at % 2 else [between]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class LiveServer(ThreadingHTTPServer):
    """Serves the page of the runs in a folder, made again where any of them has new records."""

    def __init__(self, folder: Path, port: int, metric: str) -> None:
        self.folder = folder
        self.metric = metric
        self._lock = threading.Lock()
        self._made: tuple[str, Board, Any] | None = None
        self._runs: dict[Path, Any] = {}
        super().__init__(("127.0.0.1", port), _Handler)

    def version(self) -> str:
        """A text that differs when a run has new records."""
        runs = find_runs([self.folder])[0]
        return " ".join(f"{run.name}:{state_of(run / DATABASE)}" for run in runs)

    def board(self) -> tuple[Board, Any]:
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                board = make_board([self.folder], self.metric, self._runs)
                data = page_data(board, title=f"ragbench: {self.folder}", live=True)
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
        if (self.headers.get("Host") or "").rpartition(":")[0] not in ("127.0.0.1", "localhost"):
            return self._send("text/plain", "only on this machine", 403)
        try:
            match self.path.partition("?")[0].strip("/").split("/"):
                case ["version"]:
                    return self._send("text/plain", self.server.version())
                case [""]:
                    page = _page(self.server.board()[1], [], "; connect-src 'self'")
                    return self._send("text/html", "".join(page))
                case ["data"]:
                    data = json.dumps(self.server.board()[1], default=str)
                    return self._send("application/json", data)
                case ["piece", run, number] if run.isdecimal() and number.isdecimal():
                    board = self.server.board()[0]
                    for served in board.runs[int(run) : int(run) + 1]:
                        [piece] = pieces(served, board.qids, int(number))
                        return self._send("application/json", piece)
        except RagbenchError as error:
            return self._send("text/plain", str(error), 500)
        return self._send("text/plain", "not found", 404)

    def _send(self, kind: str, text: str, status: int = 200) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is the user's."""


def make_server(folder: Path, *, port: int, metric: str) -> LiveServer:
    """A server on 127.0.0.1 of the page of `folder`, not yet serving."""
    get_metric(metric)
    find_runs([folder])
    try:
        return LiveServer(folder, port, metric)
    except OSError as error:
        raise RunError(f"cannot serve on port {port}: {error.strerror}; give --port") from None
