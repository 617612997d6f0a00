"""The runs in a folder, from their cards and summaries alone; needs no model and no metric."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragbench.errors import RunError
from ragbench.experiments.report.grid import Grid, for_machines, print_grid

_WORDS = ("run", "program", "data", "retriever", "LM")


def print_run_list(folder: Path) -> None:
    """Print one row per run under `folder`, the latest first, and those that cannot be read.

    Raises:
        RunError: there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"no folder {folder}; `ragbench eval` makes runs/")
    cards = sorted(folder.rglob("config.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    rows, broken = [], []
    for path in cards:
        try:
            rows.append(_row(path.parent, _read(path), _read(path.with_name("summary.json"))))
        except (ValueError, KeyError, TypeError, AttributeError):
            broken.append(path)
    if rows:
        columns = list(rows[0])
        drop = ("retriever", "p50 s", "cost $", "LM", "program", "data", "done", "EM")
        cells = [list(row.values()) for row in rows]
        print_grid(Grid(columns, cells, frozenset(_WORDS), drop), "runs")
    elif not for_machines():
        print(f"no runs under {folder}")
    for path in broken:
        raise RunError(f"cannot read {path}: it is no card of a run; see `ragbench doctor`")


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _row(folder: Path, card: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, str]:
    identity, scores = card["identity"], summary.get("scores") or {}
    variant = str(card["knobs"].get("variant") or "")
    compiled = " compiled" if identity.get("compiled") else ""
    cost = (summary.get("as_if") or {}).get("cost_usd")
    latency = (summary.get("latency_s") or {}).get("p50")
    done, asked = summary.get("n", 0), card.get("questions")
    row = {
        "run": folder.as_posix(),
        "program": identity["program"] + (f" ({variant})" if variant not in ("", "default") else "")
        + compiled,
        "data": f"{card['data']['name']} {identity.get('split', '')}".strip(),
        "retriever": str(identity.get("retriever", "")),
        "LM": str(card["model"]),
        "done": str(done) if asked in (None, done) else f"{done}/{asked}",
        "EM": _number(scores.get("em")) + _half(summary, "em"),
        "F1": _number(scores.get("f1")) + _half(summary, "f1"),
        "cost $": "unknown" if cost is None and summary else _number(cost, 4),
        "p50 s": _number(latency, 1),
    }  # fmt: skip
    return {
        name: "".join(c if c.isprintable() else " " for c in cell) for name, cell in row.items()
    }


def _half(summary: Mapping[str, Any], metric: str) -> str:
    """Half the width of a mean's interval; blank where the summary has none."""
    interval = (summary.get("intervals") or {}).get(metric)
    return f" ±{(interval[1] - interval[0]) / 2:.3f}" if interval else ""


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
