"""Colours, legends and axes that the charts of a report share."""

from __future__ import annotations

from ragbench.experiments.report.page.board import Board, Mean
from ragbench.experiments.report.page.drawing import Spec

#: Colours of series; more series than these begin again.
SERIES = 10


def mean_fields(mean: Mean | None) -> dict[str, float]:
    """A mean and the ends of its interval, as fields of a row; none without a mean."""
    return {"mean": mean.mean, "low": mean.low, "high": mean.high} if mean else {}


def colour_of(name: str, number: int) -> str:
    """The page's colour number `number` of those called `name`, such as s3."""
    return f"var(--{name}{number % SERIES})"


def series(board: Board) -> Spec:
    """The colour of a run by its number; the legend is left out."""
    numbers = [run.number for run in board.runs]
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": numbers, "range": [colour_of("s", n) for n in numbers]},
        "legend": None,
    }


def legend(board: Board) -> Spec:
    """A legend that names runs, whose numbers the data have."""
    labels = " : ".join(f"datum.value == {r.number} ? {_quoted(r.label)}" for r in board.runs)
    return {"orient": "top", "columns": 4, "title": None, "labelExpr": f"{labels} : ''"}


def _quoted(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in " ._-(),·=:/" else "_" for c in text)
    return f"'{kept}'"


def score_axis(field: str, board: Board) -> Spec:
    """The axis of the score, whose values are in `field`."""
    axis: Spec = {"field": field, "type": "quantitative", "title": board.metric.name}
    return {**axis, "scale": {"zero": True, "nice": True}}
