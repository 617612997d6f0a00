"""A race as people read it: who was in to the end, and when and why the others left."""

from collections.abc import Mapping
from typing import Any

from ragbench.experiments.choose.running import Choice
from ragbench.experiments.report.table import Column, Table

_COLUMNS = (
    Column("program"),
    Column("questions", "n", "count"),
    Column("score", kind="score"),
    Column("usd_1k", "$/1,000", "usd", drop=3),
    Column("tokens", kind="count", drop=4),
    Column("p95_s", "p95 s", drop=2),
    Column("outcome"),
)


def race_table(race: Mapping[str, Any]) -> Table:
    """Returns a row for each program: those that are in first, then the last to leave.

    `race` is what `choose.json` holds.
    """
    outcomes = {}
    for exit in race["exits"]:
        against = ""
        if exit["reason"] == "beaten":
            against = f", {exit['winner']} is better"
        if exit["reason"] == "not worth it":
            against = f" beside {exit['winner']}"
        outcomes[exit["program"]] = f"out at {exit['questions']}: {exit['reason']}{against}"
    rows = []
    for place, runner in enumerate(race["programs"]):
        outcome = outcomes.get(runner["name"], "still in")
        if place == 0 and len(race["running"]) == 1:
            outcome = "use this"
        row = {**runner, "program": runner["name"], "outcome": outcome}
        row["usd_1k"] = None if runner["usd"] is None else 1000 * runner["usd"]
        row["tokens"] = round(runner["tokens"])
        row["p95_s"] = f"{runner['p95_s']:.1f}"
        rows.append(row)
    return Table("race", _COLUMNS, rows)


def race_lines(choice: Choice) -> list[str]:
    """Returns what the table does not show: the questions asked, and what would decide."""
    lines = [
        f"{choice.questions} of {choice.stream} questions, {choice.calls_share:.0%} of what the "
        f"full table would have asked; worth {choice.rule.worth:g}; the best is lost at most "
        f"{choice.rule.alpha:.0%} of times"
    ]
    if not choice.decided and len(choice.running) > 1:
        lines.append("more questions would tell those that are in apart, or a larger --worth")
    return lines
