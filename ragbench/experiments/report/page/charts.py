"""The charts of a report, as Vega-Lite specifications; `drawing` makes pictures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.experiments.report.page.board import FUNNEL, SPENDING, Board, Mean
from ragbench.experiments.report.page.drawing import Spec
from ragbench.experiments.report.questions import MEASURES, Named, within

_SERIES = 10
#: Points of a line at the most.
_POINTS = 120
#: Room of a name beside a point, as shares of the chart.
_NAME_WIDTH, _NAME_HEIGHT = 0.35, 0.07
_NARROW, _WIDE, _ROW = 300, 720, 22
#: Charts that need the width of two columns.
WIDE = frozenset({"breakdown", "funnel", "causes", "scaling"})


def charts(board: Board) -> dict[str, Spec]:
    """Every chart that the runs give something to draw for, by name."""
    made = {"leaderboard": leaderboard(board)}
    for spending in SPENDING:
        made[f"pareto_{spending}"] = pareto(board, spending)
    made["breakdown"] = breakdown(board)
    made["funnel"] = funnel(board)
    made["causes"] = causes(board)
    for pair in range(len(board.pairs)):
        made[f"compiled_{pair + 1}"] = dumbbells(board, pair)
    made["scaling"] = scaling(board)
    made |= {f"budget_{name}": budget(board, name) for name in MEASURES}
    return {name: spec for name, spec in made.items() if spec}


def leaderboard(board: Board) -> Spec | None:
    """A dot and its interval for each run, best first."""
    scored = [run for run in board.runs if run.score]
    rows = [{"run": run.label, "series": run.number, **_mean(run.score)} for run in scored]
    best_first = sorted(scored, key=lambda run: run.score.mean if run.score else 0, reverse=True)
    order = [run.label for run in best_first]
    return _dots(rows, order, board.metric.name) if rows else None


def pareto(board: Board, spending: str) -> Spec | None:
    """The score against one kind of spending; runs that another dominates are grey."""
    worse = board.dominated(spending)
    rows = [
        {
            "run": run.label, "series": run.number, "spent": spent, **_mean(run.score),
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
        **_series(board),
    }
    return {
        "width": _NARROW,
        "height": 240,
        "layer": [
            {
                "data": {"values": front},
                "mark": {"type": "line", "color": "var(--muted)", "strokeDash": [4, 3]},
                "encoding": {"x": x, "y": _score_axis("mean", board)},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {
                    "x": x, "y": _score_axis("low", board), "y2": {"field": "high"}, "color": colour
                },
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {
                    "x": x, "y": _score_axis("mean", board), "color": colour,
                    "description": {"field": "run"},
                },
            },
            *_names(_apart(front, rows), x, _score_axis("mean", board)),
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


def breakdown(board: Board) -> Spec | None:
    """The score by group of questions, a panel for each breakdown."""
    if not board.groups:
        return None
    panels = []
    sizes: dict[tuple[str, str], int] = {}  # runs may have asked different numbers of questions
    for group in board.groups:
        place = (group.breakdown, group.name)
        sizes[place] = max(sizes.get(place, 0), group.score.n)
    for name in dict.fromkeys(group.breakdown for group in board.groups):
        rows = [
            {
                "run": board.runs[group.run].label,
                "series": group.run,
                "group": f"{group.name} ({sizes[name, group.name]})",
                **_mean(group.score),
            }
            for group in board.groups
            if group.breakdown == name
        ]
        panels.append({"title": name, **_grouped(rows, board)})
    return {"vconcat": panels, "spacing": 18}


def funnel(board: Board) -> Spec | None:
    """What becomes of the gold passages: in the corpus, retrieved, read, answered."""
    rows = [
        {"run": run.label, "series": run.number, "stage": stage, "share": share}
        for run in board.runs
        if run.funnel
        for stage, share in zip(FUNNEL, run.funnel, strict=True)
        if share is not None
    ]
    if not rows:
        return None
    return {
        "data": {"values": rows},
        "width": _WIDE,
        "height": 220,
        "mark": {"type": "line", "point": {"size": 45}, "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "stage", "type": "nominal", "sort": list(FUNNEL), "title": None,
                "axis": {"labelAngle": 0},
            },
            "y": {
                "field": "share", "type": "quantitative", "scale": {"domain": [0, 1]},
                "title": "share of gold passages; score",
            },
            "color": {**_series(board), "legend": _legend(board)},
        },
    }  # fmt: skip


def causes(board: Board) -> Spec | None:
    """Wrong answers by cause, stacked, as shares of the questions of a run."""
    rows = [
        {
            "run": run.label, "cause": cause, "level": cause.partition("/")[0],
            "share": n / len(run.records),
        }
        for run in board.runs
        for cause, n in sorted(run.causes.items())
    ]  # fmt: skip
    if not rows:
        return None
    levels = ["retrieval", "reading", "control", "data"]
    return {
        "data": {"values": rows},
        "width": _WIDE,
        "height": {"step": _ROW},
        "mark": {"type": "bar", "stroke": "var(--paper)"},
        "encoding": {
            "y": {"field": "run", "type": "nominal", "title": None, "sort": None, "axis": _LABELS},
            "x": {
                "field": "share", "type": "quantitative", "title": "share of questions answered "
                "wrong, by cause", "axis": {"format": "%"}, "stack": True,
            },
            "color": {
                "field": "level", "type": "nominal", "sort": levels,
                "scale": {"domain": levels, "range": [_var("s", n) for n in (0, 4, 1, 3)]},
                "legend": {"orient": "top", "title": None},
            },
            "order": {"field": "cause"},
        },
    }  # fmt: skip


def dumbbells(board: Board, number: int) -> Spec | None:
    """A pair of runs, zero-shot and compiled, by group of questions."""
    pair = board.pairs[number]
    rows = []
    for group, before, after in pair.groups:
        label = f"{group} ({before.n})"
        rows.append({"group": label, "side": "zero-shot", "mean": before.mean})
        rows.append({"group": label, "side": "compiled", "mean": after.mean})
    y = {"field": "group", "type": "nominal", "title": None, "sort": None, "axis": _LABELS}
    return {
        "data": {"values": rows},
        "width": _NARROW,
        "height": {"step": _ROW},
        "layer": [
            {
                "mark": {"type": "line", "color": "var(--grey)", "strokeWidth": 3},
                "encoding": {
                    "x": _score_axis("mean", board), "y": y, "detail": {"field": "group"}
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {
                    "x": _score_axis("mean", board), "y": y,
                    "color": {
                        "field": "side", "type": "nominal",
                        "scale": {
                            "domain": ["zero-shot", "compiled"],
                            "range": [_var("s", 0), _var("s", 1)],
                        },
                        "legend": {"orient": "top", "title": None},
                    },
                },
            },
        ],
    }  # fmt: skip


def scaling(board: Board) -> Spec | None:
    """Score against calls, a line through the runs of each program that was run several ways."""
    rows = []
    for run in board.runs:
        program = run.evaluation.card.system
        calls = run.spending["calls"]
        if run.score and calls is not None:
            rows.append({"program": program, "run": run.label, "calls": calls, **_mean(run.score)})
    names = [row["program"] for row in rows]
    rows = [row for row in rows if names.count(row["program"]) > 2]
    if not rows:
        return None
    x = {"field": "calls", "type": "quantitative", "title": SPENDING["calls"]}
    colour = {
        "field": "program", "type": "nominal",
        "scale": {"range": [_var("s", n) for n in range(_SERIES)]},
        "legend": {"orient": "top", "title": None},
    }  # fmt: skip
    return {
        "data": {"values": rows},
        "width": _WIDE,
        "height": 260,
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"x": x, "y": _score_axis("mean", board), "color": colour},
            },
            {
                "mark": {"type": "errorbar"},
                "encoding": {
                    "x": x, "y": _score_axis("low", board), "y2": {"field": "high"}, "color": colour
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
                "encoding": {"x": x, "y": _score_axis("mean", board), "color": colour},
            },
        ],
    }  # fmt: skip


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
            "y": _score_axis("score", board),
            "color": {**_series(board), "legend": {**_legend(board), "columns": 2}},
        },
    }  # fmt: skip


def _mean(mean: Mean | None) -> dict[str, float]:
    return {"mean": mean.mean, "low": mean.low, "high": mean.high} if mean else {}


def _var(name: str, number: int) -> str:
    return f"var(--{name}{number % _SERIES})"


def _series(board: Board) -> Spec:
    numbers = [run.number for run in board.runs]
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": numbers, "range": [_var("s", n) for n in numbers]},
        "legend": None,
    }


def _legend(board: Board) -> Spec:
    labels = " : ".join(f"datum.value == {r.number} ? {_quoted(r.label)}" for r in board.runs)
    return {"orient": "top", "columns": 4, "title": None, "labelExpr": f"{labels} : ''"}


def _quoted(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in " ._-(),·" else "_" for c in text)
    return f"'{kept}'"


def _score_axis(field: str, board: Board) -> Spec:
    found: Spec = {"field": field, "type": "quantitative", "title": board.metric.name}
    return {**found, "scale": {"zero": True, "nice": True}}


def _dots(rows: Sequence[Mapping[str, Any]], order: Sequence[str], name: str) -> Spec:
    numbers = sorted({row["series"] for row in rows})
    colour = {
        "field": "series", "type": "nominal", "legend": None,
        "scale": {"domain": numbers, "range": [_var("s", n) for n in numbers]},
    }  # fmt: skip
    y = {"field": "run", "type": "nominal", "sort": order, "title": None, "axis": _LABELS}
    x = {"type": "quantitative", "title": f"{name}, mean with 95 % interval"}
    return {
        "data": {"values": rows},
        "width": _NARROW,
        "height": {"step": _ROW},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"x": {**x, "field": "mean"}, "y": y, "color": colour},
            },
        ],
    }  # fmt: skip


def _grouped(rows: Sequence[Mapping[str, Any]], board: Board) -> Spec:
    labels = [run.label for run in board.runs]
    y = {"field": "group", "type": "nominal", "title": None, "axis": _LABELS}
    offset = {"field": "run", "sort": labels}
    colour = {**_series(board), "legend": _legend(board)}
    return {
        "data": {"values": rows},
        "width": _WIDE,
        "height": {"step": max(8, 40 // len(labels)), "for": "offset"},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {
                    "x": _score_axis("low", board), "x2": {"field": "high"}, "y": y,
                    "yOffset": offset, "color": colour,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {
                    "x": _score_axis("mean", board), "y": y, "yOffset": offset, "color": colour
                },
            },
        ],
    }  # fmt: skip


_LABELS: Spec = {"labelLimit": 260, "domain": False, "ticks": False, "labelFontSize": 12}
