"""The page as one HTML file, or from a server on this machine while runs continue.

The file is self-contained and needs no network. Its content security policy allows only its own
scripts and style, by their hashes. All data is text. The server answers /, /version (a text that
changes with the records), /data, and /piece/RUN/N.
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
from ragbench.experiments.report.page.data import page_data, pieces
from ragbench.experiments.report.page.report_data import ReportData, find_runs, make_board
from ragbench.experiments.report.page.texts import difference_from
from ragbench.experiments.report.table import Column, Table, written
from ragbench.experiments.store import DATABASE, state_of
from ragbench.logs import fields, get
from ragbench.metrics import get_metric
from ragbench.outputs import Output

_log = get(__name__)


def write_page(board: ReportData, path: Path, *, force: bool = False) -> int:
    """Write the page of `board` to a file in one step.

    Args:
        board: Content of the page.
        path: File to write.
        force: Replace a file that `ragbench report` did not write.

    Returns:
        The size in bytes.
    """
    output = Output(path, "report", force)
    return output.write(text.encode("utf-8", "replace") for text in _page_of(board))


def page_of(board: ReportData, *, traces: bool = True) -> str:
    """Return the page of `board`. Its plots need no traces.

    Args:
        board: Content of the page.
        traces: True adds the traces of all questions.
    """
    return "".join(_page_of(board) if traces else _page(page_data(board), []))


def _page_of(board: ReportData) -> Iterator[str]:
    return _page(page_data(board), _traces(board))


def _traces(board: ReportData) -> Iterator[str]:
    """Yield a script element for each piece of each run: JSON, gzip and base64."""
    qids = board.qids
    for at, run in enumerate(board.runs):
        for number, piece in enumerate(pieces(run, qids)):
            text = piece.encode("utf-8", "replace")
            packed = base64.b64encode(gzip.compress(text, compresslevel=4, mtime=0)).decode()
            kind = f'type="application/octet-stream" id="piece-{at}-{number}"'
            yield f"<script {kind}>{packed}</script>\n"


def _page(data: Any, traces: Iterable[str], also_allowed: str = "") -> Iterator[str]:
    """Yield the page in parts."""
    assets = resources.files("ragbench.experiments.report.page") / "assets"
    files = ("page.html", "page.css", "page.js", "trace.js")
    page, style, *scripts = (assets.joinpath(name).read_text("utf-8") for name in files)
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    # These escapes prevent tags inside JSON.
    text = json.dumps(data, default=str, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    texts = data["texts"][data["metric"]][0]
    contents: dict[str, Iterable[str]] = {
        "POLICY": [policy + also_allowed],
        "TITLE": [html.escape(texts["title"])],
        "ABOUT": [_rich(data["groups"][0]["about"])],
        "HEADLINE": [_rich(texts["headline"])],
        "FACTS": _facts(texts["facts"]),
        "TABLE": [static_table(data)],
        "STYLE": [style],
        "DATA": [text],
        "TRACES": traces,
        "SCRIPTS": [f"<script>{script}</script>" for script in scripts],
    }
    # Split at all marks at once, so that inserted contents are not searched for marks.
    for at, between in enumerate(page.split("@@")):
        yield from contents[between] if at % 2 else [between]


def _rich(spans: Iterable[tuple[str, str]]) -> str:
    texts = []
    for kind, words in spans:
        text = html.escape(words)
        texts.append(f"<b>{text}</b>" if kind == "b" else text)
    return "".join(texts)


def _facts(facts: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for question, answer in facts:
        yield f"<div><dt>{html.escape(question)}</dt><dd>{_rich(answer)}</dd></div>"


def static_table(data: Any) -> str:
    """Return the table of programs as HTML, for readers without JavaScript.

    Args:
        data: Result of `page_data`.
    """
    metric = data["metric"]
    family = data["families"][metric][0]
    rows = []
    for program in sorted(data["programs"], key=lambda each: (each["group"], each["rank"])):
        row = {**program, **program["means"][metric], "word": " "}
        row["named"] = f"{program['name']} ({program['model_short']})"
        test = difference_from(program["at"], family["best"], family)
        rows.append(row | {"difference": None} | (test or {}))
    columns = (
        Column("key", " "), Column("named", "program"),
        Column(metric, data["labels"][metric], "score", interval=True),
        Column("difference", kind="gain"), Column("word", " "),
        Column("cost_usd", "$ per 1,000", "usd_1000"), Column("p95_s", "p95 s", "seconds"),
        Column("tokens", kind="amount"), Column("failed", kind="count"),
    )  # fmt: skip
    return written(Table("programs", columns, rows), "html")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class LiveServer(ThreadingHTTPServer):
    """Server of the page of the runs in a folder. It updates the page for new records."""

    def __init__(self, folder: Path, port: int, metric: str) -> None:
        self.folder = folder
        self.metric = metric
        self._lock = threading.Lock()
        self._made: tuple[str, ReportData, Any] | None = None
        self._runs: dict[Path, Any] = {}
        super().__init__(("127.0.0.1", port), _Handler)

    def version(self) -> str:
        """Return a text that changes with new records, or "empty" without a run."""
        try:
            runs = find_runs([self.folder])[0]
        except RunError:
            return "empty"
        return " ".join(f"{run.name}:{state_of(run / DATABASE)}" for run in runs)

    def board(self) -> tuple[ReportData, Any]:
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                board = self._read()
                data = page_data(board, live=True)
                self._made = (version, board, {**data, "version": version})
            return self._made[1:]

    def _read(self) -> ReportData:
        try:
            return make_board([self.folder], self.metric, self._runs)
        except RunError as error:
            _log.info("Waiting for a record: %s", error)
            return ReportData([], [], [self.metric], self.metric)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log one line about an error. Ignore closed connections.

        Args:
            request: The connection.
            client_address: Address of the client.
        """
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            _log.warning("Cannot serve a page", extra=fields(error=repr(error)))


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        """Answer requests for this machine only, so that no other site can read runs."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
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
        """Print nothing on the user's terminal."""


def make_server(folder: Path, *, port: int, metric: str) -> LiveServer:
    """Create a server of the page of a folder on 127.0.0.1, without starting it.

    Args:
        folder: Folder of runs.
        port: Port of the server.
        metric: Metric that the page shows first.

    Raises:
        RunError: The folder is missing or the port is in use.
    """
    get_metric(metric)
    if not folder.is_dir():
        raise RunError(f"no folder {folder}. Give a folder of runs.")
    try:
        return LiveServer(folder, port, metric)
    except OSError as error:
        raise RunError(
            f"cannot serve on port {port}: {error.strerror}. Give another --port."
        ) from None
