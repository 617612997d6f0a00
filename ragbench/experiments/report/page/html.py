"""The page as one HTML file: its data, its script and style, and the vendored chart library.

It needs nothing beside it and asks the network for nothing. Its content-security policy allows the
scripts and the style in it, named by their hashes, and nothing else; all data is text to it.
"""

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterator
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


def page_of(board: Board, *, title: str = "ragbench report") -> str:
    """The page of `board` with all traces in it."""
    return _page(page_data(board, title=title), _packed(board), live=False)


def live_page(data: Any) -> str:
    """The page of `data` that asks its server for what is new, and for the traces."""
    return _page(data, iter(()), live=True)


def write_page(board: Board, path: Path, *, title: str) -> int:
    """Write the page of `board` to the file `path`, whole or not at all; its size in bytes.

    Raises:
        RunError: the file cannot be written.
    """
    content = page_of(board, title=title).encode("utf-8", "replace")
    write_whole(path, content)
    return len(content)


def _page(data: Any, packed: Iterator[tuple[str, str]], *, live: bool) -> str:
    style = _asset("page.css")
    scripts = [_asset("vendor/d3.min.js"), _asset("vendor/plot.min.js"), _asset("page.js")]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(style)} {_hash(_STYLE_OF_CHARTS)}; base-uri 'none'; form-action 'none'"
        + ("; connect-src 'self'" if live else "")
    )
    traces = "\n".join(
        f'<script type="application/octet-stream" id="{name}">{piece}</script>'
        for name, piece in packed
    )
    # Parts with text of data come last: what stands in them is not looked at again.
    whole = _asset("page.html")
    for name, value in (
        ("POLICY", policy),
        ("STYLE", style),
        ("SCRIPTS", "\n".join(f"<script>{script}</script>" for script in scripts)),
    ):
        whole = whole.replace(f"@{name}@", value, 1)
    before, _, rest = whole.partition("@TITLE@")
    between, _, after = rest.partition("@DATA@")
    content = f'<script type="application/json" id="data">{as_json(data)}</script>\n{traces}'
    return f"{before}{html.escape(data['title'])}{between}{content}{after}"


def _packed(board: Board) -> Iterator[tuple[str, str]]:
    """Id of the element and content of every piece of traces: JSON, gzip, base64."""
    qids = board.qids
    for at, shown in enumerate(board.runs):
        for number, piece in enumerate(pieces(shown, qids)):
            text = json.dumps(piece, default=str).encode("utf-8", "replace")
            packed = gzip.compress(text, compresslevel=6, mtime=0)
            yield f"piece-{at}-{number}", base64.b64encode(packed).decode()


def as_json(value: object) -> str:
    """JSON that may stand inside a script element: no tag can begin in it."""
    text = json.dumps(value, ensure_ascii=True, default=str, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    place = resources.files("ragbench.experiments.report.page") / "assets"
    return place.joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
