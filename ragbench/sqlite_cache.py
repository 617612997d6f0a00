"""Cache paid results, such as replies and vectors, in a SQLite file, by a hash of the request.

Each row has a checksum. A row with a wrong checksum is ignored and paid again. A file that is not a
database is renamed and replaced. If a file cannot be used, ragbench logs one warning and caches in
memory for the rest of the process.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ragbench.logs import get
from ragbench.paths import make_folder

_log = get(__name__)


class CachedRows:
    """Values by key in one SQLite file, shared by threads and processes; without a path, in memory.

    `put` returns when the data is on disk. Without `durable`, a power failure may lose it.
    """

    def __init__(self, path: Path | None, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        self._lock = threading.Lock()
        try:
            if path is not None:
                make_folder(path.parent)
            try:
                self._open(path or ":memory:")
            except sqlite3.OperationalError:  # locked, full, not to be written: but whole
                raise
            except sqlite3.DatabaseError as error:
                assert path is not None
                aside = path.replace(path.with_name(f"{path.name}.damaged"))
                self._open(path)
                _log.warning("%s was damaged (%s). Created a new one; the old one is %s",
                             path, error, aside.name)  # fmt: skip
        except (OSError, sqlite3.Error) as error:
            self._go_on_without(error)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process open the file itself."""
        return partial(type(self), durable=self._durable), (self._path,)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached values of `keys`, by key."""
        rows: dict[bytes, bytes] = {}
        for start in range(0, len(keys), 500):  # SQLite takes at least 999 parameters
            batch = keys[start : start + 500]
            query = f"SELECT key, value, sum FROM kept WHERE key IN ({','.join('?' * len(batch))})"
            with self._lock, suppress(sqlite3.Error):
                for key, value, kept_sum in self._db.execute(query, batch):
                    if isinstance(value, bytes) and kept_sum == _checksum(key, value):
                        rows[key] = value
        return rows

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Keep `entries`, all or none."""
        with self._lock:
            try:
                self._write(entries)
            except sqlite3.Error as error:
                self._go_on_without(error)
                self._write(entries)

    def delete(self, key: bytes) -> None:
        """Delete the value of `key`."""
        with self._lock, suppress(sqlite3.Error):
            self._db.execute("DELETE FROM kept WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file, once no other thread reads or writes it."""
        with self._lock:
            self._db.close()

    def _write(self, entries: Mapping[bytes, bytes]) -> None:
        rows = [(key, value, _checksum(key, value)) for key, value in entries.items()]
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def _open(self, path: Path | str) -> None:
        db = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
            columns = "key BLOB PRIMARY KEY, value BLOB, sum BLOB"
            db.execute(f"CREATE TABLE IF NOT EXISTS kept ({columns}) WITHOUT ROWID")
        except sqlite3.Error:
            db.close()
            raise
        self._db = db

    def _go_on_without(self, error: Exception) -> None:
        _log.warning(
            "Cannot use %s (%s). Caching in memory only; delete the file if it is damaged.",
            self._path, error,
        )  # fmt: skip
        if hasattr(self, "_db"):
            self._db.close()  # rolls back the open transaction
        self._open(":memory:")


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.sha256(key + value).digest()[:8]
