"""Reports on the choice of a program: advice over finished runs, and a race.

The report on a race shows the programs that remained, and why and when the others were eliminated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.experiments.cells.choose import Choice
from ragbench.experiments.recommend import Advice
from ragbench.experiments.recommend_by import GroupAdvice
from ragbench.experiments.report.brief import advice_sections, word_of
from ragbench.experiments.report.rows import row_of_arm
from ragbench.experiments.report.sections import Report, full
from ragbench.experiments.report.table import Column, Table, counted, with_interval

_COLUMNS = (
    Column("program"),
    Column("questions", "n", "count"),
    Column("score", kind="score"),
    Column("gold_in_context", "gold in context", "share", drop=1),
    Column("usd_1k", "$/1,000 with index", "usd", drop=3),
    Column("tokens", kind="count", drop=4),
    Column("p95_s", "p95 s", drop=2),
    Column("outcome"),
)


def race_table(race: Mapping[str, Any]) -> Table:
    """Return a row for each program: active ones first, then the others, last eliminated first.

    `race` is in the results of `experiment.json`.
    """
    outcomes = {}
    for exit in race["exits"]:
        against = ""
        if exit["reason"] == "beaten":
            against = f", {exit['winner']} is better"
        if exit["reason"] == "not worth it":
            against = f", compared with {exit['winner']}"
        outcomes[exit["program"]] = f"eliminated at {exit['questions']}: {exit['reason']}{against}"
    rows = []
    for place, runner in enumerate(race["programs"]):
        outcome = outcomes.get(runner["name"], "active")
        if place == 0 and len(race["running"]) == 1:
            outcome = "use this"
        row = {**runner, "program": runner["name"], "outcome": outcome}
        row["usd_1k"] = None if runner["usd"] is None else 1000 * runner["usd"]
        row["tokens"] = round(runner["tokens"])
        row["p95_s"] = f"{runner['p95_s']:.1f}"
        rows.append(row)
    return Table("race", _COLUMNS, rows)


def race_report(choice: Choice) -> Report:
    """Yield the advice, its programs, the questions asked and what would decide an open race."""
    yield choice.sentence
    yield race_table(choice.to_dict())
    yield (
        f"{choice.questions} of {choice.stream} questions, {choice.calls_share:.0%} of the calls "
        f"of a full table; minimum gain {choice.rule.min_gain:g}; risk of losing the best program: "
        f"at most {choice.rule.alpha:.0%}"
    )
    if len(choice.running) > 1:
        yield "more questions or a larger --min-gain would separate the active programs"


def advice_report(advice: Advice) -> Report:
    """Yield the advice, then its programs."""
    table = advice_table(advice)
    yield from advice_sections(advice, table.rows)
    yield from full([*advice.sentences(), table])


def group_advice_report(by: str, groups: Sequence[GroupAdvice]) -> Report:
    """Yield a table with the advice for each group of questions, and the mean of each program.

    Args:
        by: Name of the breakdown.
        groups: Advice for each group.
    """
    labels: dict[str, None] = {}
    rows = []
    for entry in groups:
        row: dict[str, Any] = {"group": entry.group, "questions": entry.questions}
        if entry.advice is None:
            row["advice"] = entry.reason
        else:
            row["advice"] = entry.advice.sentences()[0]
            for arm in entry.advice.arms:
                labels[arm.label] = None
                row[arm.label] = arm.mean
        rows.append(row)
    columns = [
        Column("group", by),
        Column("questions", "n", "count"),
        *(Column(label, kind="score") for label in sorted(labels)),
        Column("advice"),
    ]
    note = "each group has its own tests, corrected within the group (Holm)"
    yield Table("groups", columns, rows, f"advice by {by}", [note])


def advice_table(advice: Advice) -> Table:
    """Return a row for each program: loss to the best, p-value, price and reason."""
    rows = []
    for arm in advice.arms:
        row = {
            "program": arm.label,
            **with_interval(advice.metric, arm.mean, arm.interval),
            **with_interval("below_best", None, None),
            "p": None,
            "word": " ",
            **arm.spending,
            "p95_s": row_of_arm(arm.runs)["p95_s"],
            "gold_in_context": 1 - arm.without_gold / arm.right if arm.right else None,
            "why": arm.why or "the best mean" * (arm is advice.best),
        }
        if c := arm.to_best:
            row |= {**with_interval("below_best", c.difference, c.interval), "p": c.p_adjusted}
            row["word"] = word_of(c.outcome)
        rows.append(row)
    columns = (
        Column("program"),
        Column(advice.metric, kind="score", interval=True),
        Column("below_best", "below the best", "gain", interval=True),
        Column("p", "p (Holm)", "p"),
        Column("cost_usd", "$/1,000", "usd_1000"),
        Column("tokens", kind="amount", drop=2),
        Column("calls", kind="amount", drop=3),
        Column("gold_in_context", "right with gold in context", "share", drop=1),
        Column("why"),
    )
    title = f"{advice.metric} over {len(advice.questions)} questions, all shared"
    if advice.clusters:
        title += f", about {len(set(advice.clusters.values()))} documents"
    note = f"p of {counted(advice.family.tests, 'paired test')}, corrected (Holm)"
    return Table("programs", columns, rows, title, [note])
