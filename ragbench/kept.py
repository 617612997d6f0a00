"""What was paid for and is kept in a SQLite file: replies and vectors, by a hash of what was asked.

Each row has a checksum; one that was changed counts as not there, and is bought again. A file that
cannot be used is told once and set aside: the rest of the process keeps what it buys in memory.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ragbench.logs import get
from ragbench.paths import make_folder

_log = get(__name__)


class KeptRows:
    """One SQLite file, shared by threads and processes; without a path, in memory.

    `change` is made to a file of an earlier version, and fails where it was made. What was written
    is on disk when `write` returns.
    """

    def __init__(self, path: Path | None, schema: str, change: str = "") -> None:
        self._path, self._schema, self._change = path, schema, change
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        try:
            if self._path is not None:
                make_folder(self._path.parent)
            self._db = self._open(self._path or ":memory:")
        except (OSError, sqlite3.Error) as error:
            self._set_aside(error)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file by itself."""
        return type(self), (self._path, self._schema, self._change)

    def reopen(self) -> None:
        """Go on in a process that was forked from the one that opened the file."""
        # SQLite forbids a connection to be used, or closed, by a process forked from its own.
        self._inherited = self.__dict__.pop("_db")
        self._begin()

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows that `query` finds."""
        with self._lock:
            try:
                return self._db.execute(query, parameters).fetchall()
            except sqlite3.Error as error:
                self._set_aside(error)
                return []

    def write(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        """Run `query` for each of `rows`, all or none."""
        rows = list(rows)
        with self._lock:
            try:
                self._write(query, rows)
            except sqlite3.Error as error:
                self._set_aside(error)
                self._write(query, rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _write(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany(query, rows)
        self._db.execute("COMMIT")

    def _open(self, path: Path | str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(self._schema)
            with suppress(sqlite3.OperationalError):
                db.execute(self._change)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _set_aside(self, error: Exception) -> None:
        _log.warning(
            "%s cannot be used (%s); what is bought is kept in memory alone; remove it if it is "
            "damaged", self._path, error,
        )  # fmt: skip
        if hasattr(self, "_db"):
            self._db.close()  # rolls back what was begun
        self._db = self._open(":memory:")


_all: WeakSet[KeptRows] = WeakSet()


def _reopen() -> None:
    for rows in list(_all):
        rows.reopen()


os.register_at_fork(after_in_child=_reopen)


def checksum(*parts: bytes) -> bytes:
    """The first 8 bytes of the SHA-256 of `parts` in a row."""
    return hashlib.sha256(b"".join(parts)).digest()[:8]
