"""The vectors of a corpus: made when they are asked for, or all at once and kept in a file.

The file is written in parts, each on disk before it counts, so that a build which is stopped after
hours of embedding goes on where it was, and so that the vectors need not fit into memory.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.record import Call, total
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Vectors

#: Passages whose vectors are written at once; a smaller corpus needs no file.
PART = 8192

Embed = Callable[[Sequence[int], Progress | None], tuple[Vectors, list[Call]]]


class Rows:
    """The vectors of `n` passages, which `embed` gives by position. Thread-safe."""

    def __init__(self, n: int, embed: Embed) -> None:
        self._embed = embed
        self._lock = threading.Lock()
        self._vectors: Vectors | None = None
        self._known = np.zeros(n, dtype=bool)
        self._earlier: dict[str, Any] = {}
        #: Work for the index in this process, not for a question.
        self.calls: list[Call] = []

    def get(self, positions: Sequence[int], progress: Progress | None = None) -> Vectors:
        """The vectors at `positions`, shape `(len(positions), d)`."""
        wanted = np.asarray(positions, dtype=np.int64)
        with self._lock:
            missing = np.unique(wanted[~self._known[wanted]])
            if len(missing):
                made, calls = self._embed(missing.tolist(), progress)
                self.calls.extend(calls)
                if self._vectors is None:
                    self._vectors = np.empty((len(self._known), made.shape[1]), dtype=np.float32)
                self._vectors[missing] = made
                self._known[missing] = True
            if self._vectors is None:
                return np.zeros((0, 1), dtype=np.float32)
            return self._vectors[wanted]

    def all(self, folder: Path | None, progress: Progress | None) -> Vectors:
        """All vectors, shape `(n, d)`; in a file in `folder` if there is one and they are many."""
        n = len(self._known)
        if folder is None or n <= PART:
            return self.get(range(n), progress)
        file = _VectorFile(folder)
        with self._lock:
            self._earlier = file.spent
            for start in range(file.rows, n, PART):
                positions = range(start, min(start + PART, n))
                made, calls = self._embed(positions, _from(start, n, progress))
                self.calls.extend(calls)
                file.append(made, self._sums())
            return file.vectors()

    def forget(self) -> None:
        """Free the vectors, once an index holds them."""
        self._vectors, self._known = None, np.zeros_like(self._known)

    def spent(self) -> dict[str, Any]:
        """Tokens, seconds and US dollars of embedding, with those of a build that was stopped."""
        return self._sums() if self.calls or self._earlier else {}

    def _sums(self) -> dict[str, Any]:
        now = total(self.calls)
        usd, before = now.cost_usd, self._earlier.get("embedding_usd", 0.0)
        return {
            "embedding_tokens": now.prompt_tokens + self._earlier.get("embedding_tokens", 0),
            "embedding_s": round(now.latency_s + self._earlier.get("embedding_s", 0.0), 3),
            "embedding_usd": None if usd is None or before is None else usd + before,
        }


class _VectorFile:
    """Vectors in a file that grows; what `state.json` does not count is written again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._path, self._state = folder / "vectors.f32", folder / "state.json"
        self.rows, self._dimensions, self.spent = 0, 0, {}
        try:
            state = json.loads(self._state.read_bytes())
            rows, dimensions, spent = state["rows"], state["dimensions"], dict(state["spent"])
            if self._path.stat().st_size >= 4 * rows * dimensions > 0:
                self.rows, self._dimensions, self.spent = rows, dimensions, spent
        except (OSError, ValueError, KeyError, TypeError):  # none, or damaged: from the beginning
            pass

    def append(self, vectors: Vectors, spent: dict[str, Any]) -> None:
        """Write `vectors` behind the others; `spent` is what all took."""
        with self._path.open("r+b" if self.rows else "wb") as file:
            file.truncate(4 * self.rows * self._dimensions)
            file.seek(0, os.SEEK_END)
            file.write(np.ascontiguousarray(vectors, dtype=np.float32).tobytes())
            file.flush()
            os.fsync(file.fileno())
        self.rows, self._dimensions = self.rows + len(vectors), vectors.shape[1]
        state = {"rows": self.rows, "dimensions": self._dimensions, "spent": spent}
        partial = self._state.with_suffix(".new")
        with partial.open("w") as text:
            json.dump(state, text)
            text.flush()
            os.fsync(text.fileno())
        os.replace(partial, self._state)

    def vectors(self) -> Vectors:
        """All of them, memory-mapped."""
        shape = (self.rows, self._dimensions)
        return np.memmap(self._path, dtype=np.float32, mode="r", shape=shape)


def _from(start: int, n: int, progress: Progress | None) -> Progress | None:
    """`progress` of a part that begins at `start` of `n`."""
    if progress is None:
        return None
    told = progress
    return lambda done, _: told(start + done, n)
