"""Breakdowns of questions: by type, hops, kind of answer, and what is known without search."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.store import StoredRecords, read_card, read_records
from ragbench.metrics import GROUPINGS, Grouping, get_metric
from ragbench.record import Record

#: Breakdown -> what its rows are, for people.
GROUP_NAMES = {
    "qtype": "question type",
    "hops": "hops",
    "answer_kind": "kind of answer",
    "closed_book": "solved without retrieval",
}


def groupings(closed_book: Path | None = None) -> dict[str, Grouping]:
    """The breakdowns; with a run without retrieval, also by whether that has the answer.

    Raises:
        RunError: `closed_book` is no run folder, or has no records.
    """
    return {**GROUPINGS, **(_closed_book(closed_book) if closed_book else {})}


def wanted(by_group: bool, closed_book: Path | None) -> dict[str, Grouping] | None:
    """The breakdowns of a table that has them where either option asks for them; else None.

    Raises:
        RunError: as for `groupings`.
    """
    return groupings(closed_book) if by_group or closed_book else None


def members(
    records: StoredRecords, by: Mapping[str, Grouping]
) -> list[tuple[str, str, StoredRecords]]:
    """Breakdown (in words), group and its records, for every group that has any."""
    rows = []
    records.compute(by.values())
    for name, group in by.items():
        groups: dict[str, list[str]] = {}
        for qid, key in records.column(group).items():
            if key is not None:
                groups.setdefault(str(key), []).append(qid)
        shown = GROUP_NAMES.get(name, name)
        rows += [(shown, key, records.only(groups[key])) for key in sorted(groups)]
    return rows


def _closed_book(folder: Path) -> dict[str, Grouping]:
    read_card(folder)
    records = read_records(folder)
    if not records:
        raise RunError(f"{folder} has no records")
    em = get_metric("em")
    solved = {qid: score == 1.0 for qid, score in records.column(em.score).items()}
    names = {True: "solved", False: "not solved"}

    def group(record: Record) -> Hashable | None:
        right = solved.get(str(record.qid))
        return None if right is None else names[right]

    return {"closed_book": group}
