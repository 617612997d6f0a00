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

from collections.abc import Sequence

from ragbench.experiments.store import StoredRecords
from ragbench.record import Record

SCORED_0, LEFT_OUT, RETRIED = "scored 0", "left out", "retried"


def failed(record: Record) -> bool:
    """Whether the question got no answer."""
    return record.failed


def treatments(records: StoredRecords) -> dict[str, StoredRecords]:
    """The records that each treatment counts, by question; empty where no question ever failed."""
    first = records.first
    at_first = first.column(failed)
    if not any((*at_first.values(), *records.column(failed).values())):
        return {}
    answered = first.only(qid for qid, fails in at_first.items() if not fails)
    return {SCORED_0: first, LEFT_OUT: answered, RETRIED: records}


def paired_treatments(
    a: StoredRecords, b: StoredRecords, qids: Sequence[str]
) -> dict[str, tuple[StoredRecords, StoredRecords]]:
    """The records of two runs that each treatment counts, over `qids`.

    *Left out* keeps the questions that failed at first in neither run. Empty where none of `qids`
    ever failed in either.
    """
    sides = (a.first, b.first, a, b)
    columns = [side.column(failed) for side in sides]
    if not any(column[qid] for column in columns for qid in qids):
        return {}
    answered = [q for q in qids if not columns[0][q] and not columns[1][q]]
    return {
        SCORED_0: (a.first.only(qids), b.first.only(qids)),
        LEFT_OUT: (a.first.only(answered), b.first.only(answered)),
        RETRIED: (a.only(qids), b.only(qids)),
    }
