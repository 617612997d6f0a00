"""Three ways to count questions that failed, over the same questions.

    scored 0    every question by its first record; a failed one scores the worst
    left out    the questions whose first record did not fail
    retried     every question by its last record; one that fails still scores the worst

*Retried* is the run as it stands, and the headline of every table. It flatters where failures are
not the server's alone: a question that its program fails at random is asked until it answers.
*Left out* flatters a program that fails on hard questions. *Scored 0* blames the program for the
server. Where no question ever failed, all three are the same and none is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ragbench.record import Record

if TYPE_CHECKING:
    from ragbench.experiments.runs.evaluation import Evaluation

SCORED_0, LEFT_OUT, RETRIED = "scored 0", "left out", "retried"


def first_records(records: Mapping[str, Record], earlier: Sequence[Record]) -> dict[str, Record]:
    """The first record of each question; `earlier`, oldest first, are those replaced since."""
    first: dict[str, Record] = {}
    for record in earlier:
        first.setdefault(str(record.qid), record)
    return {qid: first.get(qid, record) for qid, record in records.items()}


def treatments(
    records: Mapping[str, Record], earlier: Sequence[Record]
) -> dict[str, dict[str, Record]]:
    """The records that each treatment counts, by question; empty where no question ever failed."""
    first = first_records(records, earlier)
    if not any(record.failed for record in (*first.values(), *records.values())):
        return {}
    answered = {qid: record for qid, record in first.items() if not record.failed}
    return {SCORED_0: first, LEFT_OUT: answered, RETRIED: dict(records)}


def paired_treatments(
    a: Evaluation, b: Evaluation, qids: Sequence[str]
) -> dict[str, list[tuple[Record, Record]]]:
    """The pairs of records of two runs that each treatment counts, over `qids`.

    *Left out* keeps the questions that failed at first in neither run. Empty where none of `qids`
    ever failed in either.
    """
    first_a, first_b = (first_records(run.records, run.earlier) for run in (a, b))
    sides = (first_a, first_b, a.records, b.records)
    if not any(side[qid].failed for side in sides for qid in qids):
        return {}
    answered = [q for q in qids if not first_a[q].failed and not first_b[q].failed]
    return {
        SCORED_0: [(first_a[q], first_b[q]) for q in qids],
        LEFT_OUT: [(first_a[q], first_b[q]) for q in answered],
        RETRIED: [(a.records[q], b.records[q]) for q in qids],
    }
