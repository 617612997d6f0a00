"""Bought vectors, kept on disk by model and text, so that no text is paid for twice."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragbench.kept import KeptRows
from ragbench.retrievers.embedders.base import Vectors

#: What follows the numbers of a vector: tokens, whether the price is unknown, price and seconds.
_SHARE = struct.Struct("<q?dd")


class Kept(NamedTuple):
    """A vector and this text's share of the call that bought it."""

    vector: Vectors
    tokens: int
    cost_usd: float | None
    latency_s: float


class VectorCache:
    """One SQLite file, shared by threads and processes."""

    def __init__(self, path: Path) -> None:
        self._rows = KeptRows(path)

    def get(self, model: str, texts: Sequence[str]) -> dict[str, Kept]:
        """The kept vectors of `texts`, by text."""
        keys = {_key(model, text): text for text in texts}
        return {keys[key]: _unpacked(value) for key, value in self._rows.get(list(keys)).items()}

    def put(self, model: str, entries: Mapping[str, Kept]) -> None:
        """Keep `entries`, by text."""
        self._rows.put({_key(model, text): _packed(kept) for text, kept in entries.items()})

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\x1f{text}".encode("utf-8", "surrogatepass")).digest()


def _packed(kept: Kept) -> bytes:
    unknown = kept.cost_usd is None
    share = _SHARE.pack(kept.tokens, unknown, kept.cost_usd or 0.0, kept.latency_s)
    return kept.vector.tobytes() + share


def _unpacked(value: bytes) -> Kept:
    vector, share = value[: -_SHARE.size], value[-_SHARE.size :]
    tokens, unknown, cost_usd, latency_s = _SHARE.unpack(share)
    row = np.frombuffer(vector, dtype=np.float32)
    return Kept(row, tokens, None if unknown else cost_usd, latency_s)
