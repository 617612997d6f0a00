"""Tables of a run's database, and the check that a file has them."""

import contextlib
import sqlite3
from functools import cache
from pathlib import Path

from ragbench.errors import RunError

#: The database of a run, and the readable copy of its card.
DATABASE, CARD = "run.db", "card.json"
#: Version of the tables. No other version can be read.
FORMAT = 5
#: "ragb", which identifies SQLite files of ragbench.
_APPLICATION = 0x72616762
#: Question id of calls for work that all questions share.
PREPARATION = ""
#: State of a record: finished, ended by an error, or ended by a limit of the command.
ANSWERED, FAILED, CUT_OFF = "answered", "failed", "cut off"
#: Columns of a record's row that its digest covers.
COLUMNS = (
    "qid", "state", "question", "answer", "em", "f1", "stop_reason", "error", "calls", "tokens",
    "cost_usd", "latency_s", "value",
)  # fmt: skip

SCHEMA = f"""
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE records (
    id INTEGER PRIMARY KEY, qid TEXT NOT NULL, state TEXT NOT NULL, question TEXT NOT NULL,
    answer TEXT, em REAL, f1 REAL, stop_reason TEXT, error TEXT, calls INTEGER, tokens INTEGER,
    cost_usd REAL, latency_s REAL, value TEXT NOT NULL, digest TEXT NOT NULL);
CREATE INDEX records_by_question ON records (qid, id);
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, qid TEXT NOT NULL, side TEXT NOT NULL,
    value TEXT NOT NULL);
CREATE INDEX calls_by_question ON calls (qid, session);
CREATE TABLE prompts (id TEXT PRIMARY KEY, text BLOB NOT NULL);
CREATE TABLE replies (
    id INTEGER PRIMARY KEY, qid TEXT NOT NULL, pass TEXT NOT NULL, key TEXT NOT NULL,
    value TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE scores (record INTEGER PRIMARY KEY, value TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE facts (
    record INTEGER PRIMARY KEY, gold_in_context REAL, all_recall REAL, cost_usd REAL, qtype TEXT,
    hops INTEGER, value TEXT NOT NULL, digest TEXT NOT NULL);
CREATE VIEW answers AS
    SELECT id, qid, state, question, answer, em, f1, stop_reason, error, calls, tokens,
        facts.cost_usd, latency_s, gold_in_context, all_recall, qtype, hops,
        records.value, records.digest
    FROM records LEFT JOIN facts ON facts.record = id WHERE id IN
        (SELECT max(id) FROM records WHERE state != 'cut off' GROUP BY qid);
CREATE VIEW metrics AS SELECT answers.qid, each.key AS metric, each.value AS score
    FROM answers JOIN scores ON scores.record = answers.id,
    json_each(scores.value, '$.scores') AS each;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
"""


def check_format(db: sqlite3.Connection, path: Path) -> None:
    """Check that a database is from ragbench and of this version.

    An untrusted file may have a view that never ends in place of a table. The tables and views must
    therefore match exactly.

    Args:
        db: The open database.
        path: Its file.

    Raises:
        RunError: The database is foreign or of another version.
        sqlite3.Error: The database cannot be read.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION:
        raise RunError(f"{path} was not written by ragbench")
    if version != FORMAT:
        raise RunError(
            f"{path} has format {version}, and this version of ragbench reads format {FORMAT}; "
            "use the version that wrote it, or run again with another --out"
        )
    if _objects(db, len(_own_objects()) + 1) != _own_objects():
        raise RunError(f"{path} was not written by ragbench: it has other tables or views")


@cache
def _own_objects() -> frozenset[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return _objects(db, 100)


def _objects(db: sqlite3.Connection, most: int) -> frozenset[tuple[str, ...]]:
    """Return type, name and SQL of at most `most` tables, indexes, views and triggers."""
    query = "SELECT type, name, tbl_name, ifnull(sql, '') FROM sqlite_master"
    return frozenset(db.execute(query).fetchmany(most))
