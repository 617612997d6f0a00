"""DSPy's cache of answers, kept on disk where nothing in it can run code, each with a checksum.

An answer that was changed, and a disk that cannot be read or written, cost a new call and nothing
else: the cache is never the reason for a wrong or a failed question.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy

from ragbench.lms.local import cache_root
from ragbench.logs import get

DISK_LIMIT_BYTES = 10 * 10**9
MEMORY_ENTRIES = 20_000

_log = get(__name__)


class CheckedStore:
    """The disk under DSPy's cache: answers as JSON, checksummed together with their key.

    Answers of an earlier version have no checksum and are taken as they are.
    """

    def __init__(self, inner: Any, folder: Path) -> None:
        self._inner, self._folder, self._told = inner, folder, False

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def get(self, key: str) -> Any:
        """What is kept under `key`; None where nothing is, or what is there was changed."""
        try:
            kept = self._inner.get(key)
        except (OSError, sqlite3.Error) as error:
            self._tell(error)
            return None
        if not isinstance(kept, str):
            return kept
        digest, _, text = kept.partition(" ")
        if digest == _digest(key, text):
            return json.loads(text)
        _log.warning("a cached answer was changed and is asked for again")
        self.delete(key)
        return None

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`, if it can be."""
        text = json.dumps(value)
        try:
            self._inner.set(key, f"{_digest(key, text)} {text}")
        except (OSError, sqlite3.Error) as error:
            self._tell(error)

    def delete(self, key: str) -> None:
        """Let go of what is under `key`."""
        try:
            self._inner.delete(key)
        except (OSError, sqlite3.Error) as error:
            self._tell(error)

    def close(self) -> None:
        """Let go of its files, which another use opens again."""
        with contextlib.suppress(OSError, sqlite3.Error):
            self._inner.close()

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            _log.warning(_BROKEN, self._folder, error)


_BROKEN = "the cache of answers in %s cannot be used (%s); going on without; remove it if damaged"


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key} {text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def configure_cache(folder: Path | None = None) -> Path:
    """Use `folder` (by default `lm` in ragbench's cache folder) for DSPy's cache; returns it.

    The cache is in DSPy's restricted mode: plain data alone is loaded from it. Where the folder
    cannot be used, answers are kept in memory alone.
    """
    folder = folder or cache_root() / "lm"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _configure(folder)
    except (OSError, sqlite3.Error) as error:
        _log.warning(_BROKEN, folder, error)
        _configure(None)
    return folder


def _configure(folder: Path | None) -> None:
    former = getattr(dspy.cache, "disk_cache", None)
    dspy.configure_cache(
        enable_disk_cache=folder is not None,
        enable_memory_cache=True,
        disk_cache_dir=str(folder),
        disk_size_limit_bytes=DISK_LIMIT_BYTES,
        memory_max_entries=MEMORY_ENTRIES,
        restrict_pickle=True,
    )
    if isinstance(former, CheckedStore):
        # 16 connections a thread, which would wait long for the collector: what was there when the
        # questions of a run began is its oldest generation.
        former.close()
        del former
        gc.collect()
    if folder is not None:
        dspy.cache.disk_cache = CheckedStore(dspy.cache.disk_cache, folder)
