"""The SQLite file of a run or a compile: its tables, how it is written, and how it is read.

One process writes at a time. A write is committed before it returns; threads that write at once
share a commit. SQLite's log of writes (WAL) lets others read meanwhile; where a file system has no
shared memory for it, SQLite's rollback journal serves. When its writer closes it, the file is a
single one again, which can be read in a folder that cannot be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ragbench.errors import RunError
from ragbench.paths import make_folder, sync

#: The version of the tables. Another version is refused: there is no code to read it.
FORMAT = 1
#: "ragb", which tells our files from other SQLite files.
_APPLICATION = 0x72616762

_SCHEMA = f"""
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE records (
    id INTEGER PRIMARY KEY, qid TEXT NOT NULL, state TEXT NOT NULL, question TEXT NOT NULL,
    answer TEXT, em REAL, f1 REAL, stop_reason TEXT, error TEXT, calls INTEGER NOT NULL,
    tokens INTEGER NOT NULL, cost_usd REAL, latency_s REAL NOT NULL, value TEXT NOT NULL,
    digest TEXT NOT NULL);
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
CREATE VIEW answers AS SELECT * FROM records WHERE id IN
    (SELECT max(id) FROM records WHERE state != 'cut off' GROUP BY qid);
CREATE VIEW metrics AS SELECT answers.qid, each.key AS metric, each.value AS score
    FROM answers JOIN scores ON scores.record = answers.id,
    json_each(scores.value, '$.scores') AS each;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
"""

#: Keeps a setting in table `run`.
SET = "INSERT OR REPLACE INTO run VALUES (?, ?)"
#: A statement and the values of its parameters.
Statement = tuple[str, Sequence[object]]


def digest_of(*values: object) -> str:
    """A hash of the values of a row, by which a row that was changed later is known.

    Text and its UTF-8 have the same.
    """
    state = hashlib.sha256()
    for value in values:
        content = value.encode() if isinstance(value, str) else value
        state.update(content if isinstance(content, bytes) else repr(content).encode())
        state.update(b"\x1f")
    return state.hexdigest()[:32]


class _Write:
    """What one thread has to write, and what came of it."""

    def __init__(self, statements: Sequence[Statement], durable: bool) -> None:
        self.statements, self.durable = statements, durable
        self.done = False
        self.error: Exception | None = None


class Writer:
    """Writes to the database at `path`, which is made by the first write; thread-safe.

    The caller holds the folder (`held`); a process that took the database over all the same ends
    this writer at its next write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._waiting: list[_Write] = []
        self._queueing, self._committing = threading.Lock(), threading.Lock()
        self._token = secrets.token_hex(8)
        self._place: os.stat_result | None = None
        #: How often the database was opened for writing, this time included.
        self.session = 0

    def write(self, *statements: Statement, durable: bool = True) -> None:
        """Run the statements, all or none; they are committed when this returns.

        What is not `durable` outlives the process, but not a loss of power.

        Raises:
            RunError: the disk is full, the file was removed, or another process took it over.
        """
        write = _Write(statements, durable)
        with self._queueing:
            self._waiting.append(write)
        with self._committing:
            if not write.done:  # no other thread has committed it together with its own
                with self._queueing:
                    batch, self._waiting = self._waiting, []
                self._commit(batch)
        if isinstance(write.error, RunError):
            raise write.error
        if write.error is not None:
            raise RunError(f"cannot write {self.path}: {write.error}") from None

    def open(self, *first: Statement) -> None:
        """Open the database unless it is open, and make it if need be, with what `first` writes.

        Raises:
            RunError: it cannot be opened, or is of another version.
        """
        with self._committing:
            try:
                self._opened(first)
            except (sqlite3.Error, OSError) as error:
                raise RunError(f"cannot write {self.path}: {error}") from None

    def _commit(self, batch: Sequence[_Write]) -> None:
        error: Exception | None = None
        try:
            db = self._opened()
            durable = any(write.durable for write in batch)
            db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            try:
                self._check_claim(db)
                for write in batch:
                    for statement, values in write.statements:
                        db.execute(statement, values)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError, RunError) as caught:
            error = caught
        for write in batch:
            write.done, write.error = True, error

    def _opened(self, first: Sequence[Statement] = ()) -> sqlite3.Connection:
        if self._closed:
            raise RunError(f"{self.path} is closed: the run was stopped")
        if self._db is None:
            if self.path.is_symlink():
                raise RunError(f"{self.path} is a link; remove it")
            if not self.path.exists():
                _make(self.path, first)
            self._db = self._open()
        return self._db

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            check_format(db, self.path)
            with contextlib.suppress(sqlite3.OperationalError):  # no shared memory here
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("BEGIN IMMEDIATE")
            row = db.execute("SELECT value FROM run WHERE name='session'").fetchone()
            self.session = 1 + int(row[0] if row else 0)
            db.executemany(SET, [("session", str(self.session)), ("writer", self._token)])
            db.execute("COMMIT")
            self._place = os.stat(self.path)
        except BaseException:
            db.close()
            raise
        return db

    def _check_claim(self, db: sqlite3.Connection) -> None:
        """Do nothing if the file is where it was, and this process the last to open it to write."""
        try:
            moved = self._place and not os.path.samestat(self._place, os.stat(self.path))
        except FileNotFoundError:
            moved = True
        if moved:
            raise RunError(f"{self.path} was removed or replaced while it was written to")
        if db.execute("SELECT value FROM run WHERE name='writer'").fetchone() != (self._token,):
            raise RunError(f"{self.path} was taken over by another process")

    def close(self) -> None:
        """Close the file; what is written later fails."""
        with self._committing:
            self._closed = True
            if self._db is not None:
                with contextlib.suppress(sqlite3.Error):  # somebody reads it, or the disk is full
                    self._db.execute("PRAGMA busy_timeout=1000")
                    self._db.execute("PRAGMA journal_mode=DELETE")
                self._db.close()
                self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _make(path: Path, first: Sequence[Statement]) -> None:
    """Make the database at `path`, with what `first` writes: whole, or not at all."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(temporary)) as db:
            db.executescript(_SCHEMA)
            for statement, values in first:
                db.execute(statement, values)
            db.commit()
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


class Reader:
    """Reads the database at `path`; thread-safe. Where there is none, it has no rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        try:
            if self.path.is_file():
                self._db = self._open()
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"cannot read {self.path}: {error}") from None
        if self._db is not None:
            weakref.finalize(self, self._db.close)

    def _open(self) -> sqlite3.Connection:
        address = self.path.absolute().as_uri() + "?mode=ro"
        if not os.access(self.path.parent, os.W_OK) and not _log_of(self.path).exists():
            address += "&immutable=1"  # SQLite would make files for its locks
        db = sqlite3.connect(address, uri=True, timeout=60, check_same_thread=False)
        try:
            check_format(db, self.path)
        except BaseException:
            db.close()
            raise
        return db

    def rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows that `query` finds.

        Raises:
            RunError: the file cannot be read, or is damaged.
        """
        return list(self.each(query, values))

    def each(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows that `query` finds, some at a time.

        Raises:
            RunError: the file cannot be read, or is damaged.
        """
        if self._db is None:
            return
        try:
            with self._lock:
                cursor = self._db.execute(query, values)
            while True:
                with self._lock:
                    some = cursor.fetchmany(100)
                if not some:
                    return
                yield from some
        except sqlite3.Error as error:
            raise RunError(
                f"cannot read {self.path}: {error}; see `ragbench doctor {self.path.parent}`"
            ) from None


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def check_format(db: sqlite3.Connection, path: Path) -> None:
    """Do nothing if `db` is a run's, of this version.

    Raises:
        RunError: it is not.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION:
        raise RunError(f"{path} was not written by ragbench")
    if found != FORMAT:
        raise RunError(
            f"{path} has format {found}, and this version of ragbench reads format {FORMAT}; "
            "use the version that wrote it, or run again with another --out"
        )


def state_of(path: Path) -> str:
    """A text that differs when something was written to the database at `path`."""
    stats = [one.stat() for one in (path, _log_of(path)) if one.exists()]
    return " ".join(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats)
