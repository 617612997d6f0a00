"""The SQLite file of a run or a compile: its tables, how it is written, and how it is read.

A write is committed before it returns; threads that write at once share a commit. SQLite's log of
writes (WAL) lets others read meanwhile, and is gone when the writer closes the file; where a file
system has no shared memory for it, SQLite's rollback journal serves.
"""

import contextlib
import hashlib
import os
import queue
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
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

#: Puts a setting into table `run`.
SET = "INSERT OR REPLACE INTO run VALUES (?, ?)"
#: A statement and the values of its parameters.
Statement = tuple[str, Sequence[object]]


def digest_of(*values: object) -> str:
    """A hash of a row's values, which tells that it was changed; text and its UTF-8 are equal."""
    state = hashlib.sha256()
    for value in values:
        content = value.encode() if isinstance(value, str) else value
        state.update(content if isinstance(content, bytes) else repr(content).encode())
        state.update(b"\x1f")
    return state.hexdigest()[:32]


class Writer:
    """Writes to the database at `path`, for a `with` block; thread-safe.

    The first write makes the file. Opening it puts `settings` into its table `run`, those of a new
    file in one step with it. The caller holds the folder (`held`); a process that took the database
    over all the same ends this writer at its next write.
    """

    def __init__(self, path: Path, settings: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.settings = dict(settings or {})
        #: How often the database was opened for writing, this time included.
        self.session = 0
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._waiting: queue.SimpleQueue[tuple[Sequence[Statement], bool, Future[None]]] = (
            queue.SimpleQueue()
        )
        self._committing = threading.Lock()
        self._token = secrets.token_hex(8)
        self._place: os.stat_result | None = None

    def write(self, *statements: Statement, durable: bool = True) -> None:
        """Run the statements, all or none; they are committed when this returns.

        What is not `durable` outlives the process, but not a loss of power. A full disk, a file
        that was removed or one that another process took over raises RunError.
        """
        done: Future[None] = Future()
        self._waiting.put((statements, durable, done))
        with self._committing:
            if not done.done():  # no other thread has committed it together with its own
                self._commit()
        done.result()

    def _commit(self) -> None:
        batch = [self._waiting.get() for _ in range(self._waiting.qsize())]
        try:
            db = self._opened()
            durable = any(durable for _, durable, _ in batch)
            db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            with _transaction(db):
                self._check_claim(db)
                for statements, _, _ in batch:
                    for statement, values in statements:
                        db.execute(statement, values)
        except BaseException as error:
            told = isinstance(error, sqlite3.Error | OSError)
            why = RunError(f"cannot write {self.path}: {error}") if told else error
            for _, _, done in batch:
                done.set_exception(why)
        else:
            for _, _, done in batch:
                done.set_result(None)

    def _opened(self) -> sqlite3.Connection:
        if self._closed:
            raise RunError(f"{self.path} is closed: the run was stopped")
        if self._db is not None:
            return self._db
        if self.path.is_symlink():
            raise RunError(f"{self.path} is a link; remove it")
        if not self.path.exists():
            _make(self.path, self.settings)
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            check_format(db, self.path)
            with contextlib.suppress(sqlite3.OperationalError):  # no shared memory here
                db.execute("PRAGMA journal_mode=WAL")
            with _transaction(db):
                before = db.execute("SELECT value FROM run WHERE name = 'session'").fetchone()
                self.session = 1 + int(before[0] if before else 0)
                claim = {"session": str(self.session), "writer": self._token}
                db.executemany(SET, {**self.settings, **claim}.items())
            self._place = os.stat(self.path)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _check_claim(self, db: sqlite3.Connection) -> None:
        try:
            moved = self._place and not os.path.samestat(self._place, os.stat(self.path))
        except FileNotFoundError:
            moved = True
        if moved:
            raise RunError(f"{self.path} was removed or replaced while it was written to")
        if db.execute("SELECT value FROM run WHERE name = 'writer'").fetchone() != (self._token,):
            raise RunError(f"{self.path} was taken over by another process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._committing:
            self._closed = True
            if self._db is not None:
                with contextlib.suppress(sqlite3.Error):  # somebody reads it, or the disk is full
                    self._db.execute("PRAGMA busy_timeout=1000")
                    self._db.execute("PRAGMA journal_mode=DELETE")
                self._db.close()
                self._db = None


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """What is done inside the block, all or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _make(path: Path, settings: Mapping[str, str]) -> None:
    """Make the database: whole, or not at all."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(temporary)) as db, db:
            db.executescript(_SCHEMA)
            db.executemany(SET, settings.items())
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


class Reader:
    """Reads the database at `path`; thread-safe. Where there is none, it has no rows.

    A file that cannot be read, is damaged or of another version raises RunError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        try:
            if path.is_file():
                self._db = self._open()
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"cannot read {path}: {error}") from None

    def _open(self) -> sqlite3.Connection:
        address = self.path.absolute().as_uri() + "?mode=ro"
        if not os.access(self.path.parent, os.W_OK) and not _log_of(self.path).exists():
            address += "&immutable=1"  # SQLite would make files for its locks
        db = sqlite3.connect(address, uri=True, timeout=60, check_same_thread=False)
        weakref.finalize(self, db.close)
        check_format(db, self.path)
        return db

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows that `query` finds."""
        return list(self.each(query, *values))

    def each(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows that `query` finds, some at a time."""
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
    """Do nothing if `db` is a run's, of this version; raise RunError if not."""
    [(application,), (found,)] = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
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
