"""The page as one HTML file: its data, its script and style, and the vendored chart library.

It needs nothing beside it and asks the network for nothing. Its content-security policy allows the
scripts and the style in it, named by their hashes, and nothing else; all data is text to it.
"""

import base64
import gzip
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from ragbench.experiments.report.page.data import Board, page_data, pieces
from ragbench.experiments.store import write_whole

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


def write_page(board: Board, path: Path, *, title: str) -> int:
    """Write the page of `board` to the file `path`, whole or not at all; its size in bytes.

    Raises:
        RunError: the file cannot be written.
    """
    content = page_of(board, title=title).encode("utf-8", "replace")
    write_whole(path, content)
    return len(content)


def page_of(board: Board, *, title: str = "ragbench report") -> str:
    """The page of `board` with all traces in it, each piece as JSON, gzip and base64."""
    traces = []
    for at, shown in enumerate(board.runs):
        for number, piece in enumerate(pieces(shown, board.qids)):
            text = json.dumps(piece, default=str).encode("utf-8", "replace")
            packed = base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0)).decode()
            kind = f'type="application/octet-stream" id="piece-{at}-{number}"'
            traces.append(f"<script {kind}>{packed}</script>")
    return _page(page_data(board, title=title), traces, "")


def live_page(data: Any) -> str:
    """The page of `data` that asks its server for what is new, and for the traces."""
    return _page(data, [], "; connect-src 'self'")


def _page(data: Any, traces: list[str], also_allowed: str) -> str:
    style = _asset("page.css")
    scripts = [_asset("vendor/d3.min.js"), _asset("vendor/plot.min.js"), _asset("page.js")]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(style)} {_hash(_STYLE_OF_CHARTS)}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy + also_allowed,
        "TITLE": html.escape(data["title"]),
        "STYLE": style,
        "DATA": f'<script type="application/json" id="data">{as_json(data)}</script>',
        "TRACES": "\n".join(traces),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # Cut at all marks at once: what stands in a part is not looked at again.
    text, *marked = _asset("page.html").split("@@")
    return text + "".join(parts[name] if at % 2 == 0 else name for at, name in enumerate(marked))


def as_json(value: object) -> str:
    """JSON that may stand inside a script element: no tag can begin in it."""
    text = json.dumps(value, ensure_ascii=True, default=str, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    place = resources.files("ragbench.experiments.report.page") / "assets"
    return place.joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
