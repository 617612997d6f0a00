"""Tables of systems with several repeats: one row each, with repeats pooled."""

from collections.abc import Sequence
from typing import Any

from ragbench.experiments.compare.paired import Arm, Shared, groups_of
from ragbench.experiments.report.names import label_runs
from ragbench.experiments.report.rows import row_of_arm
from ragbench.experiments.report.sections import Report
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.runs.summary import HEADLINE
from ragbench.metrics import repeated, repeats_differ

_COLUMNS = (
    Column("program"),
    Column("repeats", kind="count"),
    Column("n", kind="count", drop=3),
    Column("em", "EM", "score", interval=True),
    Column("always", "pass^R", "score", interval=True),
    Column("ever", "pass@R", "score", interval=True, drop=1),
    Column("f1", "F1", "score", interval=True),
    Column("noise", "noise of EM", "score", drop=4),
    Column("failed", kind="count", drop=6),
    Column("calls", kind="amount", drop=5),
    Column("tokens", kind="amount", drop=5),
    Column("cost_usd", "$/1,000", "usd_1000", drop=2),
)
LEGEND = (
    "EM and F1 are means over questions and repeats; pass^R: exactly right every time, pass@R: at "
    "least once; noise of EM: the standard deviation between repeats of the same questions; "
    "calls, tokens and cost are per question and repeat"
)


def pooled_report(arms: Sequence[Arm]) -> Report:
    """Yield the table of arms if one has several repeats."""
    if any(len(arm) > 1 for arm in arms):
        yield pooled_table(arms, label_arms(arms))


def label_arms(arms: Sequence[Arm]) -> list[str]:
    """Return the name of each arm, as in `label_runs`, with the folder of all repeats."""
    labels = []
    for arm, label in zip(arms, label_runs([arm[0] for arm in arms]), strict=True):
        folder = arm[0].folder
        if len(arm) > 1 and label.endswith(f", {folder.name}"):
            label = f"{label.removesuffix(folder.name)}{folder.parent.name}"
        labels.append(label)
    return labels


def pooled_table(arms: Sequence[Arm], labels: Sequence[str]) -> Table:
    """Return a row for each arm, over the questions that all of its runs have.

    Args:
        arms: Repeats of each system.
        labels: Name of each arm.
    """
    rows = []
    notes = [LEGEND]
    for label, arm in zip(labels, arms, strict=True):
        row, warning = _row(arm)
        rows.append({"program": label, **row})
        if warning:
            notes.append(f"{label}: {warning}")
    return Table("repeats", _COLUMNS, rows, notes=notes)


def _row(arm: Arm) -> tuple[dict[str, Any], str]:
    """Return the row of an arm, and a warning if its repeats differ more than by chance."""
    shared = Shared.within(arm)
    row: dict[str, Any] = {**row_of_arm(arm), "repeats": len(arm), "n": len(shared.qids)}
    warning = ""
    for name in HEADLINE:
        scored, scores = shared.complete(arm, name)
        groups = groups_of(shared.clusters, scored)
        row |= with_interval(name, *shared.mean(arm, name))
        if repeats_differ(scores, groups):
            means = ", ".join(f"{mean:.3f}" for mean in scores.mean(axis=1))
            warning = f"repeats differ by more than chance ({name} {means}): compare their settings"
        if name == "em":
            pooled = repeated(scores, 1.0, groups)
            row |= with_interval("always", pooled.always, pooled.always_interval)
            row |= with_interval("ever", pooled.ever, pooled.ever_interval)
            row["noise"] = pooled.noise if len(arm) > 1 else None
    return row, warning
