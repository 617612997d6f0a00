"""A search over knobs as people read it."""

from __future__ import annotations

from typing import Any

from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.report.compiled import by_choosing, ends
from ragbench.experiments.report.table import Column, Table, print_table, say, with_interval
from ragbench.experiments.tune import Point, Tuned
from ragbench.metrics import Best


def print_tuned(tuned: Tuned) -> None:
    """Print the front, with the knobs as they were given below it."""
    names = list(tuned.default.values)
    rows = []
    for point in tuned.front:
        card = read_sidecar(point.folder)
        gain = with_interval("gain", card.scores["difference"], ends(card.scores.get("interval")))
        luck = {"by_choosing": by_choosing(card, tuned.trials)}
        rows.append({"point": f"front/{point.folder.name}", **_row(point), **gain, **luck})
    rows.append({"point": "as given", **_row(tuned.default)})
    columns = [
        Column("point", "program"),
        *(Column(name, kind="number", interval=True) for name in names),
        Column("gain", f"{names[0]}, difference", "gain", interval=True, drop=2),
        Column("by_choosing", "by choosing", drop=3),
        Column("n", kind="count", drop=4),
        Column("failed", kind="count", drop=5),
        Column("knobs", drop=1),
    ]
    print_table(Table("front", columns, rows))
    given_up = f", {tuned.pruned} pruned" if tuned.pruned else ""
    say(f"{tuned.trials} trials{given_up}; no other trial beats one of these on every objective")
    if tuned.best:
        say(_corrected(tuned.best, names[0]))
    say(
        "chosen by the scores shown, which flatters them; on held-out questions: "
        f"ragbench eval --compiled {tuned.front[0].folder}"
    )


def _corrected(best: Best, name: str) -> str:
    low, high = best.interval.low, best.interval.high
    return (
        f"the best {name} of {best.candidates} looks like {best.seen:.4g}; without the luck of "
        f"being chosen: {best.corrected:.4g}, 95 % interval [{low:.4g}, {high:.4g}]"
    )


def _row(point: Point) -> dict[str, Any]:
    row: dict[str, Any] = {"n": point.n, "failed": point.failed}
    for name, value in point.values.items():
        row |= with_interval(name, value, point.intervals.get(name))
    knobs = (f"{name}={_short(value)}" for name, value in point.knobs.items())
    return row | {"knobs": ", ".join(knobs)}


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
