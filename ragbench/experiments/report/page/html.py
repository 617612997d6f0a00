"""The report as one HTML file that needs nothing beside it: no network, no script of others."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ragbench.errors import RunError, needs_extra
from ragbench.experiments.report.grid import as_latex
from ragbench.experiments.report.page.board import SPENDING, Board, make_board
from ragbench.experiments.report.page.charts import WIDE, charts
from ragbench.experiments.report.page.drawing import PAPER, to_png, to_svg
from ragbench.experiments.report.page.traces import PIECE, card_rows, pieces, rows
from ragbench.experiments.report.questions import MEASURES
from ragbench.experiments.runs import Evaluation

#: Charts in the order in which the page shows them, with their headings.
HEADINGS = {
    "leaderboard": "Accuracy",
    **{f"pareto_{name}": f"Accuracy against {axis}" for name, axis in SPENDING.items()},
    "breakdown": "By kind of question",
    "funnel": "What becomes of the gold passages",
    "causes": "Why answers are wrong",
    "scaling": "More calls, better answers?",
    **{f"budget_{name}": title for name, title in MEASURES.items()},
}


def render_page(
    evaluations: Sequence[Evaluation],
    *,
    metric: str = "f1",
    title: str = "ragbench report",
    live: bool = False,
) -> str:
    """The report of `evaluations`, as HTML, with accuracy measured by `metric`.

    A `live` page asks its server for a newer version from time to time.

    Raises:
        UnknownNameError: there is no such metric.
        MissingExtraError: the packages that draw are not installed.
    """
    return page_of(make_board(evaluations, metric), title=title, live=live)


def page_of(
    board: Board, *, title: str, live: bool = False, beside: Sequence[str] | None = None
) -> str:
    """The HTML page of `board`.

    `beside` are the addresses of the files that `write_traces` wrote, relative to the page; without
    them the steps of all questions are in the page.
    """
    style, script = _asset("page.css"), _asset("page.js")
    index = {
        "metric": board.metric.name,
        "piece": PIECE,
        "live": live,
        "beside": beside,
        "runs": [run.label for run in board.runs],
        "pairs": [[pair.before, pair.after] for pair in board.pairs],
        "rows": rows(board),
    }
    drawn = [
        {"name": name, "heading": _heading(name, board), "svg": to_svg(spec), "wide": name in WIDE}
        for name, spec in charts(board).items()
    ]
    page: str = _template().render(
        title=title,
        policy=_policy(style, script, live=live, beside=beside is not None),
        style=style,
        script=script,
        board=board,
        charts=drawn,
        sections=board.measured if live else board.sections,
        latex=as_latex,
        cards=[
            (run.label, card_rows(run.evaluation.card.model_dump(mode="json")))
            for run in board.runs
        ],
        index=_json(index),
        pieces=list(pieces(board)) if beside is None else (),
    )
    return page


def _heading(name: str, board: Board) -> str:
    if name.startswith("compiled_"):
        pair = board.pairs[int(name.rpartition("_")[2]) - 1]
        a, b = board.runs[pair.before].label, board.runs[pair.after].label
        return f"{a} and {b}: {pair.fixed} questions better, {pair.broken} worse"
    return HEADINGS[name]


def _template() -> Any:
    with needs_extra("a page with charts"):
        from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_asset("page.html"))


def _asset(name: str) -> str:
    return (resources.files("ragbench.experiments.report.page") / "assets" / name).read_text(
        "utf-8"
    )


def _json(value: object) -> str:
    """JSON that may stand inside a script element: no tag can begin in it."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(style: str, script: str, *, live: bool, beside: bool = False) -> str:
    """The content-security policy: this page's own script and style, and nothing else.

    Where steps are `beside` the page, what its own script loads is allowed too; a page on disk has
    no origin by which the files could be named.
    """
    own = "; connect-src 'self'" if live else ""
    loaded = " 'strict-dynamic'" if beside else ""
    return (
        f"default-src 'none'; script-src {_hash(script)}{loaded}; style-src {_hash(style)}; "
        f"base-uri 'none'; form-action 'none'{own}"
    )


def write_traces(board: Board, folder: Path, page: Path) -> list[str]:
    """Write the steps of all questions into `folder`; their addresses relative to the file `page`.

    They are scripts, since a page on disk may load nothing else, and named by their content, so
    that a page never shows the steps of another.

    Raises:
        RunError: the folder cannot be written.
    """
    names = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = Path(os.path.relpath(folder.resolve(), page.resolve().parent))
        for piece in pieces(board):
            name = hashlib.sha256(piece.encode()).hexdigest()[:16]
            (folder / f"{name}.js").write_text(f'ragbenchPiece("{name}", "{piece}");\n', "utf-8")
            names.append(f"./{quote((place / name).as_posix())}.js")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    return names


def write_parts(board: Board, folder: Path) -> tuple[int, int]:
    """Write every chart as SVG and PNG, on white, and every table as LaTeX, into `folder`.

    Gives the number of charts and of tables.

    Raises:
        RunError: the folder cannot be written.
        MissingExtraError: the packages that draw are not installed.
    """
    drawn = charts(board)
    tables = [board.leaderboard, *(table for part in board.sections for table in part.tables)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, spec in drawn.items():
            (folder / f"{name}.svg").write_text(to_svg(spec, PAPER), "utf-8")
            (folder / f"{name}.png").write_bytes(to_png(spec))
        for table in tables:
            (folder / f"{table.name}.tex").write_text(as_latex(table.grid) + "\n", "utf-8")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    return len(drawn), len(tables)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
