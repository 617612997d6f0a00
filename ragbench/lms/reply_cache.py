"""DSPy's cache of replies: in memory, and on disk as JSON with checksums: none runs code."""

import json
import threading
from pathlib import Path
from typing import Any

import dspy

from ragbench.paths import cache_root
from ragbench.sqlite_cache import CachedRows

#: Replies that are kept in memory.
MEMORY_ENTRIES = 20_000


#: DSPy's own disk cache: to close its 16 files takes a tenth of the start of a command.
_former: list[Any] = []
#: `key` is the disk key of the calling thread's last reply. A call begins without one.
last_reply = threading.local()


class Answers:
    """Disk cache of DSPy.

    A changed entry or an unusable disk costs a new call and nothing else.
    """

    def __init__(self, path: Path) -> None:
        self._rows = CachedRows(path, durable=False)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the value cached under `key`. None if it is missing or was changed."""
        last_reply.key = key
        rows = self._rows.get([key.encode()])
        if rows:
            return json.loads(rows[key.encode()])
        return None

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`, if it can be.

        Args:
            key: Key of the request.
            value: JSON value.
        """
        last_reply.key = key
        self._rows.put({key.encode(): json.dumps(value).encode()})

    def delete(self, key: str) -> None:
        """Delete the value cached under `key`."""
        self._rows.delete(key.encode())

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def forget_reply() -> None:
    """Do not keep the reply that this thread got last: nothing in it could be read."""
    key = getattr(last_reply, "key", None)
    last_reply.key = None
    if key is not None:
        dspy.cache.memory_cache.pop(key, None)
        if dspy.cache.enable_disk_cache:  # a program may have turned DSPy's cache off since
            dspy.cache.disk_cache.delete(key)


def configure_cache(folder: Path | None = None) -> None:
    """Use `folder` (by default `lm` in ragbench's cache folder) for DSPy's cache."""
    folder = folder or cache_root() / "lm"
    former = getattr(dspy.cache, "disk_cache", None)
    if isinstance(former, Answers):
        former.close()
    else:
        _former.append(former)
    dspy.configure_cache(
        enable_disk_cache=False, enable_memory_cache=True, memory_max_entries=MEMORY_ENTRIES
    )
    dspy.cache.disk_cache = Answers(folder / "replies.sqlite")
    dspy.cache.enable_disk_cache = True
