"""Databases of runs as tests look into them, and change them by hand."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from ragbench.experiments.estimates import Estimate
from ragbench.experiments.store import CALLS, DATABASE
from ragbench.experiments.store.database import COLUMNS
from ragbench.redact import digest_of


def query(folder: Path, statement: str, *values: Any, name: str = DATABASE) -> list[Any]:
    """The rows that a statement gives; what it changes is kept. None where there is no database."""
    if not (folder / name).is_file():
        return []
    with contextlib.closing(sqlite3.connect(folder / name)) as db, db:
        return db.execute(statement, values).fetchall()


def record_rows(folder: Path) -> list[dict[str, Any]]:
    """Every record of the run in `folder`, in the order in which they were written."""
    found = query(folder, "SELECT value FROM records ORDER BY id")
    return [json.loads(value) for (value,) in found]


def scores(folder: Path) -> dict[str, dict[str, Any]]:
    """What the run was scored by, by question."""
    found = query(
        folder, "SELECT qid, scores.value FROM answers JOIN scores ON answers.id = scores.record"
    )
    return {qid: json.loads(value) for qid, value in found}


def sign(folder: Path, row: int, value: str) -> None:
    """Put `value` in the place of a record, with a digest that fits."""
    names = ", ".join(COLUMNS[:-1])
    [columns] = query(folder, f"SELECT {names} FROM records WHERE id = ?", row)
    digest = digest_of(*columns, value)
    query(folder, "UPDATE records SET value = ?, digest = ? WHERE id = ?", value, digest, row)


def card(folder: Path) -> dict[str, Any]:
    """What `card.json` holds."""
    return dict(json.loads((folder / "card.json").read_text()))


def compile_calls(folder: Path) -> list[str]:
    """Every call in the journal of the compile in `folder`, with its attempt and its side."""
    statement = "SELECT session, side, value FROM calls ORDER BY id"
    return [" ".join(map(str, row)) for row in query(folder / "work", statement, name=CALLS)]


def holds(found: Estimate, *, calls: int, tokens: int, cost: float | None) -> bool:
    """Whether what was spent lies in the range that was expected."""
    took = (calls, tokens, found.low.cost if cost is None else cost)
    ends = zip(found.low, took, found.high, strict=False)  # without the time
    return all(low <= x <= high for low, x, high in ends)
