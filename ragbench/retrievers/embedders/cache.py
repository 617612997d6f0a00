"""Bought vectors, kept on disk by model and text, so that no text is paid for twice.

Each row has a checksum; one that was changed counts as not there, and its text is embedded again.
A file that cannot be used is told and gone on without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from ragbench.logs import get
from ragbench.retrievers.embedders.base import Vectors

_log = get(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, vector BLOB, tokens INTEGER, cost_usd REAL, latency_s REAL, sum BLOB
) WITHOUT ROWID
"""
_COLUMNS = "key, vector, tokens, cost_usd, latency_s, sum"


class Kept(NamedTuple):
    """A vector and this text's share of the call that bought it."""

    vector: Vectors
    tokens: int
    cost_usd: float | None
    latency_s: float


class VectorCache:
    """One SQLite file, shared by threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._open()
        _all.add(self)

    def reopen(self) -> None:
        """Go on in a process that was forked from the one that opened the file."""
        # SQLite forbids a connection to be used, or closed, by a process forked from its own.
        self._inherited, self._lock = self._db, threading.Lock()
        if self._db is not None:
            self._open()

    def _open(self) -> None:
        path = self._path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path, timeout=60, check_same_thread=False, isolation_level=None
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(_SCHEMA)
            with contextlib.suppress(sqlite3.OperationalError):  # it is there
                self._db.execute("ALTER TABLE vectors ADD COLUMN sum BLOB")
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Kept]:
        """What is kept of `texts`, by text."""
        keys = {_key(model, text): text for text in texts}
        found: dict[str, Kept] = {}
        wanted = list(keys)
        for start in range(0, len(wanted), 500):  # SQLite takes at least 999 parameters
            for row in self._rows(wanted[start : start + 500]):
                *content, checksum = row
                # Rows of an earlier version have no checksum.
                if checksum is None or checksum == _checksum(*content):
                    key, vector, *share = content
                    found[keys[key]] = Kept(np.frombuffer(vector, dtype=np.float32), *share)
        return found

    def _rows(self, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        marks = ",".join("?" * len(keys))
        query = f"SELECT {_COLUMNS} FROM vectors WHERE key IN ({marks})"
        with self._lock:
            if self._db is None:
                return []
            try:
                return self._db.execute(query, keys).fetchall()
            except sqlite3.Error as error:
                self._give_up(error)
                return []

    def put(self, model: str, entries: Mapping[str, Kept]) -> None:
        """Keep `entries`, by text."""
        contents = (
            (_key(model, text), kept.vector.tobytes(), kept.tokens, kept.cost_usd, kept.latency_s)
            for text, kept in entries.items()
        )
        rows: Iterable[tuple[object, ...]] = ((*each, _checksum(*each)) for each in contents)
        with self._lock:
            if self._db is None:
                return
            try:
                self._db.execute("BEGIN")
                query = f"INSERT OR REPLACE INTO vectors ({_COLUMNS}) VALUES (?,?,?,?,?,?)"
                self._db.executemany(query, rows)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._give_up(error)

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()

    def _give_up(self, error: Exception) -> None:
        """Go on without the file; what was begun is rolled back."""
        _log.warning(
            "the cache of vectors %s cannot be used (%s); going on without it; remove it if it is "
            "damaged", self._path, error,
        )  # fmt: skip
        if self._db is not None:
            self._db.close()
            self._db = None


_all: WeakSet[VectorCache] = WeakSet()


def _reopen() -> None:
    for cache in list(_all):
        cache.reopen()


os.register_at_fork(after_in_child=_reopen)


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\x1f{text}".encode("utf-8", "surrogatepass")).digest()


def _checksum(*row: Any) -> bytes:
    """The first 8 bytes of the SHA-256 of a row: key, vector, tokens, cost and latency."""
    key, vector, tokens, cost_usd, latency_s = row
    try:
        share = struct.pack("<q?dd", tokens, cost_usd is None, cost_usd or 0.0, latency_s)
        return hashlib.sha256(key + vector + share).digest()[:8]
    except (TypeError, struct.error):  # of other types: it was changed
        return b""
