"""The tables of a run's database, and how one of ours is told from any other file."""

import contextlib
import hashlib
import sqlite3
from functools import cache
from pathlib import Path

from ragbench.errors import RunError

#: The database of a run, and the file that shows its card.
DATABASE, CARD = "run.db", "card.json"
#: The version of the tables. Another version is refused: there is no code to read it.
FORMAT = 4
#: "ragb", which tells our files from other SQLite files.
_APPLICATION = 0x72616762
#: In place of a question's id: the calls that make what all questions share.
PREPARATION = ""
#: What came of a question: it came to its end, an error ended it, or a limit of the command did.
ANSWERED, FAILED, CUT_OFF = "answered", "failed", "cut off"
#: The columns of a record's row that its digest is of, the digest itself left out.
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
    record INTEGER PRIMARY KEY, evidence REAL, all_recall REAL, cost_usd REAL, qtype TEXT,
    hops INTEGER, value TEXT NOT NULL, digest TEXT NOT NULL);
CREATE VIEW answers AS
    SELECT id, qid, state, question, answer, em, f1, stop_reason, error, calls, tokens,
        facts.cost_usd, latency_s, evidence, all_recall, qtype, hops,
        records.value, records.digest
    FROM records LEFT JOIN facts ON facts.record = id WHERE id IN
        (SELECT max(id) FROM records WHERE state != 'cut off' GROUP BY qid);
CREATE VIEW metrics AS SELECT answers.qid, each.key AS metric, each.value AS score
    FROM answers JOIN scores ON scores.record = answers.id,
    json_each(scores.value, '$.scores') AS each;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
"""


def digest_of(*values: object) -> str:
    """A hash of a row's values, which tells that it was changed; text and its UTF-8 are equal."""
    digest = hashlib.sha256()
    for value in values:
        if not isinstance(value, str | bytes):
            value = repr(value)
        if isinstance(value, str):
            value = value.encode()
        digest.update(value + b"\x1f")
    return digest.hexdigest()[:32]


def check_format(db: sqlite3.Connection, path: Path) -> None:
    """Do nothing if the database at `path`, opened as `db`, is ours and of this version.

    A file of a stranger may have a view in the place of a table, which never ends: the tables and
    views must be ours to the letter.

    Raises:
        RunError: it is not, or of another version.
        sqlite3.Error: it cannot be read.
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
    """Type, name and text of the tables, indexes, views and triggers, `most` at the most."""
    query = "SELECT type, name, tbl_name, ifnull(sql, '') FROM sqlite_master"
    return frozenset(db.execute(query).fetchmany(most))
