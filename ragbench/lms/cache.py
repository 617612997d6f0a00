"""DSPy's cache of answers, kept on disk where nothing in it can run code, each with a checksum.

An answer that was changed, and a disk that cannot be read or written, cost a new call and nothing
else: the cache is never the reason for a wrong or a failed question.
"""

import contextlib
import gc
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy

from ragbench.lms.local import cache_root
from ragbench.logs import get

DISK_LIMIT_BYTES = 10 * 10**9
MEMORY_ENTRIES = 20_000

#: What SQLite says of a database that is whole, and cannot be used now.
_NO_DAMAGE = re.compile(r"locked|full|readonly|unable to open|I/O")
_log = get(__name__)


class _Last(threading.local):
    """The key under which the calling thread's last reply was found or kept on disk."""

    key: str | None = None


_last = _Last()


class CheckedStore:
    """The disk under DSPy's cache: answers as JSON, checksummed together with their key."""

    def __init__(self, inner: Any, folder: Path) -> None:
        self._inner, self._folder, self._told = inner, folder, False

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def get(self, key: str) -> Any:
        """What is kept under `key`; None where nothing is, or what is there was changed."""
        _last.key = key
        try:
            kept = self._inner.get(key)
        except Exception as error:  # whatever a damaged file makes of a database
            self._tell(error)
            return None
        if kept is None:
            return None
        digest, _, text = kept.partition(" ") if isinstance(kept, str) else ("", "", "")
        if text and digest == _digest(key, text):
            return json.loads(text)
        _log.warning("a cached answer was changed and is asked for again")
        self.delete(key)
        return None

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`, if it can be."""
        _last.key = key
        text = json.dumps(value)
        try:
            self._inner.set(key, f"{_digest(key, text)} {text}")
        except Exception as error:
            self._tell(error)

    def delete(self, key: str) -> None:
        """Let go of what is under `key`."""
        try:
            self._inner.delete(key)
        except Exception as error:
            self._tell(error)

    def close(self) -> None:
        """Let go of its files, which another use opens again."""
        with contextlib.suppress(Exception):
            self._inner.close()

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            _log.warning(_BROKEN, self._folder, error)


_BROKEN = "the cache of answers in %s cannot be used (%s); going on without; remove it if damaged"


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key} {text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def begin_reply() -> None:
    """A call begins: `forget_reply` means its reply from now on."""
    _last.key = None


def forget_reply() -> None:
    """Do not keep the reply that this thread got last: nothing in it could be read."""
    key, _last.key = _last.key, None
    if key is None:
        return
    disk = getattr(dspy.cache, "disk_cache", None)
    with getattr(dspy.cache, "_lock", contextlib.nullcontext()):
        dspy.cache.memory_cache.pop(key, None)
    if isinstance(disk, CheckedStore):
        disk.delete(key)


def configure_cache(folder: Path | None = None) -> Path:
    """Use `folder` (by default `lm` in ragbench's cache folder) for DSPy's cache; returns it.

    The cache is in DSPy's restricted mode: plain data alone is loaded from it. One that cannot be
    opened is made anew; where that fails too, answers are kept in memory alone.
    """
    folder = folder or cache_root() / "lm"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _configure(folder)
        except Exception as error:
            if isinstance(error, OSError) or _NO_DAMAGE.search(str(error)):
                raise
            aside = folder.with_name(f"{folder.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            folder.mkdir()
            _configure(folder)
            _log.warning("the cache of answers was damaged (%s) and is made anew; the old one is "
                         "in %s", error, aside)  # fmt: skip
    except Exception as error:
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
