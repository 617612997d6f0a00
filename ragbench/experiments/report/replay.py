"""What a replay of wrong answers came to, as people read it."""

from __future__ import annotations

from collections import Counter

from ragbench.experiments.report.table import Column, Report, Table
from ragbench.experiments.score.replay import CAUSES, Replayed


def replay_report(replayed: Replayed) -> Report:
    """What mends the wrong answers, and what it would be worth."""
    counts = Counter(replayed.causes.values())
    for worth in replayed.worth:
        ends = ""
        if worth.interval:
            ends = f" {worth.interval.words()}"
        yield f"{worth.part} is worth {worth.gain:.3f}{ends}"
    rows = []
    for cause, cure in CAUSES.items():
        share = counts[cause] / replayed.questions if replayed.questions else None
        rows.append({"cause": cause, "n": counts[cause], "share": share, "mended by": cure})
    columns = (
        Column("cause"),
        Column("n", kind="count"),
        Column("share", kind="share"),
        Column("mended by"),
    )
    yield Table("causes", columns, rows)
    if replayed.unknown:
        yield (
            f"{len(replayed.unknown)} wrong answers were not asked again: their gold passages are "
            "not known, or not at hand (name the data of the run: --dataset, --data-file, ...)"
        )
    yield replayed.spent
