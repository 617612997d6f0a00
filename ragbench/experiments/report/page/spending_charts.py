"""Charts of accuracy against what it takes: trade-offs, budgets, more calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.experiments.report.page.axes import (
    SERIES,
    colour_of,
    legend,
    mean_fields,
    score_axis,
    series,
)
from ragbench.experiments.report.page.board import SPENDING, Board
from ragbench.experiments.report.page.drawing import Spec
from ragbench.experiments.report.questions import Named, within

_NARROW, _WIDE = 300, 720
#: Points of a line at the most.
_POINTS = 120
#: Room of a name beside a point, as shares of the chart.
_NAME_WIDTH, _NAME_HEIGHT = 0.35, 0.07


def pareto(board: Board, spending: str) -> Spec | None:
    """The score against one kind of spending; runs that another dominates are grey."""
    worse = board.dominated(spending)
    rows = [
        {
            "run": run.label, "series": run.number, "spent": spent, **mean_fields(run.score),
            "state": "dominated" if run.number in worse else "on the front",
        }
        for run in board.runs
        if run.score and (spent := run.spending[spending]) is not None
    ]  # fmt: skip
    if len(rows) < 2 or not any(row["spent"] for row in rows):
        return None
    front = sorted((row for row in rows if row["state"] != "dominated"), key=lambda r: r["spent"])
    x = {
        "field": "spent", "type": "quantitative", "title": SPENDING[spending],
        "axis": {"tickCount": 5},
    }  # fmt: skip
    colour = {
        "condition": {"test": "datum.state == 'dominated'", "value": "var(--grey)"},
        **series(board),
    }
    return {
        "width": _NARROW,
        "height": 240,
        "layer": [
            {
                "data": {"values": front},
                "mark": {"type": "line", "color": "var(--muted)", "strokeDash": [4, 3]},
                "encoding": {"x": x, "y": score_axis("mean", board)},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {
                    "x": x, "y": score_axis("low", board), "y2": {"field": "high"}, "color": colour
                },
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "x": x, "y": score_axis("mean", board), "color": colour,
                    "description": {"field": "run"},
                },
            },
            *_names(_apart(front, rows), x, score_axis("mean", board)),
        ],
    }  # fmt: skip


def _apart(front: Sequence[Spec], rows: Sequence[Spec]) -> list[Spec]:
    """The points that are named: the front, and others whose name would cover none before it."""
    width = max(row["spent"] for row in rows) - min(row["spent"] for row in rows)
    height = max(row["high"] for row in rows)
    named = list(front)
    for row in rows:
        near = (
            abs(row["spent"] - other["spent"]) < _NAME_WIDTH * width
            and abs(row["mean"] - other["mean"]) < _NAME_HEIGHT * height
            for other in named
        )
        if row not in named and not any(near):
            named.append(row)
    return named


def _names(rows: Sequence[Mapping[str, Any]], x: Spec, y: Spec) -> list[Spec]:
    """The names of points beside them, on a ground of their own: lines may pass below."""
    mark = {"type": "text", "align": "left", "dx": 7, "dy": -9, "fontSize": 11}
    encoding = {"x": x, "y": y, "text": {"field": "run"}}
    ink = {
        "condition": {"test": "datum.state == 'dominated'", "value": "var(--muted)"},
        "value": "var(--ink)",
    }
    ground = {**mark, "stroke": "var(--panel)", "strokeWidth": 4, "strokeJoin": "round"}
    return [
        {"data": {"values": rows}, "mark": ground, "encoding": encoding},
        {"data": {"values": rows}, "mark": mark, "encoding": {**encoding, "color": ink}},
    ]


def budget(board: Board, spending: str) -> Spec | None:
    """The score within a budget, a step line for each run; None where there is none to draw."""
    rows: list[dict[str, Any]] = []
    for run in board.runs:
        column = sorted(within(Named(run.label, run.evaluation), spending, board.metric))
        if not column:
            return None
        total, n = 0.0, len(column)
        rows.append({"run": run.label, "series": run.number, "budget": 0.0, "score": 0.0})
        for number, (spent, score) in enumerate(column):
            total += score
            last = number + 1 == n or column[number + 1][0] != spent
            if last and (n <= _POINTS or number % (n // _POINTS) == 0 or number + 1 == n):
                point = {"budget": spent, "score": total / n}
                rows.append({"run": run.label, "series": run.number, **point})
    end = max((row["budget"] for row in rows), default=0.0)
    last_of = {row["series"]: row for row in rows}
    rows += [{**row, "budget": end} for row in last_of.values() if row["budget"] < end]
    if len({row["budget"] for row in rows}) < 3 or board.metric.worst != 0:
        return None
    return {
        "data": {"values": rows},
        "width": _NARROW,
        "height": 220,
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "budget", "type": "quantitative", "axis": {"tickCount": 5},
                "title": f"budget, {SPENDING[spending]}",
            },
            "y": score_axis("score", board),
            "color": {**series(board), "legend": {**legend(board), "columns": 2}},
        },
    }  # fmt: skip


def scaling(board: Board) -> Spec | None:
    """Score against calls, a line through the runs of each program that was run several ways."""
    rows = []
    for run in board.runs:
        program = run.evaluation.card.system
        calls = run.spending["calls"]
        if run.score and calls is not None:
            rows.append(
                {"program": program, "run": run.label, "calls": calls, **mean_fields(run.score)}
            )
    names = [row["program"] for row in rows]
    rows = [row for row in rows if names.count(row["program"]) > 2]
    if not rows:
        return None
    x = {"field": "calls", "type": "quantitative", "title": SPENDING["calls"]}
    colour = {
        "field": "program", "type": "nominal",
        "scale": {"range": [colour_of("s", n) for n in range(SERIES)]},
        "legend": {"orient": "top", "title": None},
    }  # fmt: skip
    return {
        "data": {"values": rows},
        "width": _WIDE,
        "height": 260,
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"x": x, "y": score_axis("mean", board), "color": colour},
            },
            {
                "mark": {"type": "errorbar"},
                "encoding": {
                    "x": x, "y": score_axis("low", board), "y2": {"field": "high"}, "color": colour
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
                "encoding": {"x": x, "y": score_axis("mean", board), "color": colour},
            },
        ],
    }  # fmt: skip
