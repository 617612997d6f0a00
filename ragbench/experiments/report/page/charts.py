"""The charts of a report, as Vega-Lite specifications; `drawing` makes pictures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.experiments.report.page.axes import (
    colour_of,
    legend,
    mean_fields,
    score_axis,
    series,
)
from ragbench.experiments.report.page.board import FUNNEL, SPENDING, Board
from ragbench.experiments.report.page.drawing import Spec
from ragbench.experiments.report.page.spending_charts import budget, pareto, scaling
from ragbench.experiments.report.questions import MEASURES

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
    rows = [{"run": run.label, "series": run.number, **mean_fields(run.score)} for run in scored]
    best_first = sorted(scored, key=lambda run: run.score.mean if run.score else 0, reverse=True)
    order = [run.label for run in best_first]
    return _dots(rows, order, board.metric.name) if rows else None


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
                **mean_fields(group.score),
            }
            for group in board.groups
            if group.breakdown == name
        ]
        panels.append({"title": name, **_grouped(rows, board)})
    return {"vconcat": panels, "spacing": 18}


def funnel(board: Board) -> Spec | None:
    """A chart of how many gold passages are in the corpus, retrieved, read and answered with."""
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
            "color": {**series(board), "legend": legend(board)},
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
                "scale": {"domain": levels, "range": [colour_of("s", n) for n in (0, 4, 1, 3)]},
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
                    "x": score_axis("mean", board), "y": y, "detail": {"field": "group"}
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {
                    "x": score_axis("mean", board), "y": y,
                    "color": {
                        "field": "side", "type": "nominal",
                        "scale": {
                            "domain": ["zero-shot", "compiled"],
                            "range": [colour_of("s", 0), colour_of("s", 1)],
                        },
                        "legend": {"orient": "top", "title": None},
                    },
                },
            },
        ],
    }  # fmt: skip


def _dots(rows: Sequence[Mapping[str, Any]], order: Sequence[str], name: str) -> Spec:
    numbers = sorted({row["series"] for row in rows})
    colour = {
        "field": "series", "type": "nominal", "legend": None,
        "scale": {"domain": numbers, "range": [colour_of("s", n) for n in numbers]},
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
    colour = {**series(board), "legend": legend(board)}
    return {
        "data": {"values": rows},
        "width": _WIDE,
        "height": {"step": max(8, 40 // len(labels)), "for": "offset"},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {
                    "x": score_axis("low", board), "x2": {"field": "high"}, "y": y,
                    "yOffset": offset, "color": colour,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {
                    "x": score_axis("mean", board), "y": y, "yOffset": offset, "color": colour
                },
            },
        ],
    }  # fmt: skip


_LABELS: Spec = {"labelLimit": 260, "domain": False, "ticks": False, "labelFontSize": 12}
