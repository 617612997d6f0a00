"""The one gate to stored databases: what is opened, how, and how much may be read of it.

A folder may come from a stranger, and its writer may have been killed. So: regular files alone (a
pipe would be waited for), our tables and views alone (a view that never ends could stand in the
place of one), and a limit on rows and on time. Where the folder can be written, the database is
opened for reading and writing, since SQLite takes back a write that a kill cut short (a "hot
journal") before it reads; no statement writes all the same.
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

#: What SQLite may have beside a database: its log of writes, the index of it, a rollback journal.
_BESIDE = ("-wal", "-shm", "-journal")
#: Bytes of one value at the most: SQLite would give up to 1 GB.
_MOST_VALUE = 2**28
#: Bytes that a row takes in the file at the least; a damaged or forged tree has more rows.
_LEAST_ROW = 4
#: Seconds without a row after which a statement is ended, and how often SQLite asks.
_MOST_SECONDS = 300.0
_INSTRUCTIONS = 1_000_000
#: Bytes of a text that was kept compressed: more than a model reads.
_MOST_TEXT = 2**26


def check_files(path: Path) -> None:
    """Do nothing if the database `path` and what SQLite has beside it are regular files or missing.

    Raises:
        RunError: one of them is a pipe, a device or a folder.
    """
    for file in (path, *(path.with_name(path.name + end) for end in _BESIDE)):
        try:
            check_regular(file)
        except OSError as error:
            raise RunError(f"cannot read {file}: {error.strerror}") from None


def unpacked(content: Any) -> str | None:
    """The text that was kept as `content`; None where it is damaged or larger than any text."""
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(content, _MOST_TEXT)
    except (zlib.error, TypeError):
        return None
    if not stream.eof:
        return None
    return text.decode("utf-8", "replace")


class Reader:
    """Reads the database at `path`; thread-safe. Where there is none, it has no rows.

    A file that cannot be read, is damaged, foreign or of another version raises RunError.
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
        """Whether there was a database when this was made."""
        return self._db is not None

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows that `query` finds, one at a time."""
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
    return "mode=ro&immutable=1"  # SQLite would make files for its locks


def _files(path: Path) -> list[Path]:
    """The database, and what of a writer stands beside it."""
    beside = []
    for end in ("-wal", "-journal"):
        beside.append(path.with_name(path.name + end))
    return [path, *(file for file in beside if file.exists())]


def state_of(path: Path) -> str:
    """A text that differs when something was written to the database at `path`."""
    states = []
    for file in _files(path):
        status = file.stat()
        if status.st_size:  # a reader makes an empty log of writes
            states.append(f"{status.st_size}:{status.st_mtime_ns}")
    return " ".join(states)
