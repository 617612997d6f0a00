"""Bought vectors, kept on disk by model and text, so that no text is paid for twice."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragbench.kept import KeptRows, checksum
from ragbench.retrievers.embedders.base import Vectors

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
        self._rows = KeptRows(path, _SCHEMA, "ALTER TABLE vectors ADD COLUMN sum BLOB")

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Kept]:
        """The kept vectors of `texts`, by text."""
        keys = {_key(model, text): text for text in texts}
        kept: dict[str, Kept] = {}
        wanted = list(keys)
        for start in range(0, len(wanted), 500):  # SQLite takes at least 999 parameters
            part = wanted[start : start + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT {_COLUMNS} FROM vectors WHERE key IN ({marks})"
            for *content, kept_sum in self._rows.read(query, part):
                # Rows of an earlier version have no checksum.
                if kept_sum is None or kept_sum == _checksum(*content):
                    key, vector, *share = content
                    kept[keys[key]] = Kept(np.frombuffer(vector, dtype=np.float32), *share)
        return kept

    def put(self, model: str, entries: Mapping[str, Kept]) -> None:
        """Keep `entries`, by text."""
        contents = (
            (_key(model, text), kept.vector.tobytes(), kept.tokens, kept.cost_usd, kept.latency_s)
            for text, kept in entries.items()
        )
        query = f"INSERT OR REPLACE INTO vectors ({_COLUMNS}) VALUES (?,?,?,?,?,?)"
        self._rows.write(query, ((*each, _checksum(*each)) for each in contents))

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\x1f{text}".encode("utf-8", "surrogatepass")).digest()


def _checksum(*row: Any) -> bytes:
    """The checksum of a row: key, vector, tokens, cost and latency."""
    key, vector, tokens, cost_usd, latency_s = row
    try:
        share = struct.pack("<q?dd", tokens, cost_usd is None, cost_usd or 0.0, latency_s)
        return checksum(key, vector, share)
    except (TypeError, struct.error):  # of other types: it was changed
        return b""
