"""List of the runs in a folder, from their cards and summaries, without models or metrics."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragbench.errors import RunError
from ragbench.experiments.report.sections import Report
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.paths import read_file

#: Card of a run. Not imported from `experiments.store`, which loads pydantic.
_CARD = "card.json"
_COLUMNS = (
    Column("run"),
    Column("program", drop=1),
    Column("data", drop=4),
    Column("retriever", drop=8),
    Column("lm", "LM", drop=3),
    Column("done", "n", "count"),
    Column("asked", kind="count", drop=6),
    Column("em", "EM", "score", interval=True, drop=5),
    Column("f1", "F1", "score", interval=True),
    Column("cost_usd", "$/1,000", "usd_1000", drop=2),
)


def run_list_report(folder: Path) -> Report:
    """Yield a row for each run under `folder`, the latest first.

    Raises:
        RunError: The folder is missing or a card cannot be read.
    """
    if not folder.is_dir():
        raise RunError(f"no folder {folder}. `ragbench eval` creates runs/.")
    cards = sorted(folder.rglob(_CARD), key=lambda p: p.stat().st_mtime, reverse=True)
    rows = []
    broken = []
    for path in cards:
        try:
            summary = _read(path.with_name("summary.json")) or _so_far(path.parent)
            rows.append(_row(path.parent, _read(path), summary))
        except (RunError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            broken.append(path)
    if rows:
        yield Table("runs", _COLUMNS, rows)
    else:
        yield f"no runs under {folder}"
    for path in broken:
        raise RunError(
            f"cannot read {path}: it is not a run card. Check the run with `ragbench verify`."
        )


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content = json.loads(read_file(path))
    if isinstance(content, dict):
        return content
    return {}


def _so_far(folder: Path) -> dict[str, Any]:
    """Return the results so far of a run without a summary."""
    from ragbench.experiments.store import DATABASE, Reader

    query = "SELECT count(*), count(em), avg(ifnull(em, 0)), avg(ifnull(f1, 0)) FROM answers"
    n, scored, em, f1 = next(Reader(folder / DATABASE).rows(query), (0, 0, None, None))
    if not scored:
        return {"n": n, "scores": {}}
    return {"n": n, "scores": {"em": em, "f1": f1}}


def _row(folder: Path, card: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    identity = card["identity"]
    scores = summary.get("scores") or {}
    variant = str(card["knobs"].get("variant") or "")
    program = identity["program"]
    if variant not in ("", "default"):
        program += f" ({variant})"
    cost = (summary.get("as_if") or {}).get("cost_usd")
    intervals = summary.get("intervals") or {}
    n = summary.get("n", 0)
    row = {
        "run": folder.as_posix(),
        "program": program + " compiled" * bool(identity.get("compiled")),
        "data": f"{card['data']['name']} {identity.get('split', '')}".strip(),
        "retriever": str(identity.get("retriever", "")),
        "lm": str(card["model"]),
        "done": n,
        "asked": card.get("questions"),
        **with_interval("em", scores.get("em"), intervals.get("em")),
        **with_interval("f1", scores.get("f1"), intervals.get("f1")),
        "cost_usd": cost / n if cost is not None and n else None,
    }
    for name in card.get("unknown") or ():
        if name in row:
            row[name] = None
    return row
