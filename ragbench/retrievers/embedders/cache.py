"""Bought vectors, kept on disk by model and text, so that no text is paid for twice."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragbench.retrievers.embedders.base import Vectors

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, vector BLOB, tokens INTEGER, cost_usd REAL, latency_s REAL
) WITHOUT ROWID
"""


class Kept(NamedTuple):
    """A vector and this text's share of the call that bought it."""

    vector: Vectors
    tokens: int
    cost_usd: float | None
    latency_s: float


class VectorCache:
    """One SQLite file, shared by threads and processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(_SCHEMA)

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Kept]:
        """What is kept of `texts`, by text."""
        keys = {_key(model, text): text for text in texts}
        found: dict[str, Kept] = {}
        wanted = list(keys)
        for start in range(0, len(wanted), 500):  # SQLite takes at least 999 parameters
            part = wanted[start : start + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT * FROM vectors WHERE key IN ({marks})"
            with self._lock:
                rows = self._db.execute(query, part).fetchall()
            for key, vector, *share in rows:
                found[keys[key]] = Kept(np.frombuffer(vector, dtype=np.float32), *share)
        return found

    def put(self, model: str, entries: Mapping[str, Kept]) -> None:
        """Keep `entries`, by text."""
        rows: Iterable[tuple[object, ...]] = (
            (_key(model, text), kept.vector.tobytes(), kept.tokens, kept.cost_usd, kept.latency_s)
            for text, kept in entries.items()
        )
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?,?,?,?,?)", rows)
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\x1f{text}".encode()).digest()
