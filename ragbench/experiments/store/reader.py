"""The single gate to stored databases, with checks of files and limits on reads.

A folder may be untrusted, and its writer may have been killed. The gate therefore accepts only
regular files, because a pipe would block. It accepts only the tables and views of ragbench, because
a foreign view may never end. It limits rows and time. If the folder is writable, the database is
opened for reading and writing, since SQLite first rolls back a write that was cut short (a "hot
journal"). No statement writes.
"""

import os
import sqlite3
import time
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragbench.errors import RunError
from ragbench.experiments.store.schema import check_format
from ragbench.paths import check_regular

#: Suffixes of SQLite's files next to a database: write-ahead log, its index, rollback journal.
_BESIDE = ("-wal", "-shm", "-journal")
#: Maximum size of a value in bytes. SQLite itself allows 1 GB.
_MOST_VALUE = 2**28
#: Minimum size of a row in bytes. A damaged or forged file claims more rows than fit.
_LEAST_ROW = 4
#: Timeout in seconds without a new row, and SQLite's instructions between two checks of it.
_MOST_SECONDS = 300.0
_INSTRUCTIONS = 1_000_000
#: Maximum size in bytes of a decompressed text, more than a model reads.
_MOST_TEXT = 2**26


def check_files(path: Path) -> None:
    """Check that a database and SQLite's files next to it are regular files or missing.

    Raises:
        RunError: One of them is a pipe, a device or a folder.
    """
    for file in (path, *(path.with_name(path.name + end) for end in _BESIDE)):
        try:
            check_regular(file)
        except OSError as error:
            raise RunError(f"cannot read {file}: {error.strerror}") from None


def unpacked(content: Any) -> str | None:
    """Return the text stored as `content`, or None if it is damaged or too large."""
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(content, _MOST_TEXT)
    except (zlib.error, TypeError):
        return None
    if not stream.eof:
        return None
    return text.decode("utf-8", "replace")


class Reader:
    """Reader of the database at `path`. Thread-safe. A missing database has no rows.

    A file that is unreadable, damaged, foreign or of another version raises RunError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._deadline = 0.0
        if not path.is_file():
            return
        check_files(path)
        try:
            self._most_rows = sum(file.stat().st_size for file in _files(path)) // _LEAST_ROW
            address = f"{path.absolute().as_uri()}?{_mode(path)}"
            self._db = sqlite3.connect(address, uri=True, timeout=60, check_same_thread=False)
            weakref.finalize(self, self._db.close)
            self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE)
            self._db.execute("PRAGMA query_only = ON")
            self._db.execute("PRAGMA trusted_schema = OFF")
            check_format(self._db, path)
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"cannot read {path}: {error}") from None
        this = weakref.ref(self)
        self._db.set_progress_handler(lambda: _is_late(this()), _INSTRUCTIONS)

    @property
    def exists(self) -> bool:
        """True if there was a database when this object was created."""
        return self._db is not None

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query.

        Args:
            query: SQL query.
            values: Values of its parameters.

        Raises:
            RunError: The database cannot be read, or a limit on rows or time is exceeded.
        """
        if self._db is None:
            return
        number = 0
        try:
            self._deadline = time.monotonic() + _MOST_SECONDS
            for row in self._db.execute(query, values):
                number += 1
                if number > self._most_rows:
                    raise sqlite3.DatabaseError("it has more rows than its size allows")
                yield row
                self._deadline = time.monotonic() + _MOST_SECONDS
        except sqlite3.Error as error:
            raise RunError(
                f"cannot read {self.path}: {error}; see `ragbench verify {self.path.parent}`"
            ) from None


def _is_late(reader: Reader | None) -> bool:
    return reader is not None and time.monotonic() > reader._deadline


def _mode(path: Path) -> str:
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return "mode=rw"
    if len(_files(path)) > 1:
        return "mode=ro"
    return "mode=ro&immutable=1"  # Otherwise SQLite would create lock files.


def _files(path: Path) -> list[Path]:
    """Return the database and the files of a writer next to it."""
    beside = []
    for end in ("-wal", "-journal"):
        beside.append(path.with_name(path.name + end))
    return [path, *(file for file in beside if file.exists())]


def state_of(path: Path) -> str:
    """Return a text that changes with each write to the database at `path`."""
    states = []
    for file in _files(path):
        status = file.stat()
        if status.st_size:  # A reader creates an empty write-ahead log.
            states.append(f"{status.st_size}:{status.st_mtime_ns}")
    return " ".join(states)
