"""Report on the Pareto front of a `tune`."""

from typing import Any

from ragbench.experiments.cells.tune import TuneResult, in_words
from ragbench.experiments.report.sections import Report
from ragbench.experiments.report.table import Column, Table, with_interval


def tuned_report(tuned: TuneResult) -> Report:
    """Yield the front, with the settings as given in the last row."""
    names = list(tuned.default.means)
    rows = []
    for number, point in enumerate((*tuned.front, tuned.default)):
        row: dict[str, Any] = {
            "point": "as given" if point is tuned.default else f"front/{number:02d}",
            "n": len(point.run.records),
            "failed": point.run.summary.failed,
            "settings": in_words(point.settings),
        }
        if point.gain:
            row |= with_interval("difference", point.gain.difference, point.gain.interval)
        for name, mean in point.means.items():
            row |= with_interval(name, mean.mean, mean.interval)
        rows.append(row)
    columns = [
        Column("point", "program"),
        *(Column(name, kind="number", interval=True) for name in names),
        Column("difference", f"{names[0]}, difference", "gain", interval=True, drop=2),
        Column("n", kind="count", drop=4),
        Column("failed", kind="count", drop=5),
        Column("settings", drop=1),
    ]
    yield Table("front", columns, rows)
    yield f"{tuned.trials} trials; no other trial is better than one of these on every objective"
    yield (
        "selected by these scores, which are therefore optimistic; test held-out questions: "
        f"ragbench eval --compiled {tuned.folder}/front/00"
    )
