"""Large corpus files, copied once into the index store, so that their passages stay on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ragbench.data.passage_file import FORMAT, PassageFile, write_passages
from ragbench.data.readers import count_rows, is_streamed
from ragbench.retrievers import IndexStore, Passage

log = logging.getLogger(__name__)

#: From this size on a corpus file is copied; below it, it is read into memory in seconds.
LARGE_BYTES = 64 << 20

#: Seconds between two lines on the progress of a copy.
_TOLD_EVERY_S = 15.0


def is_large(path: Path) -> bool:
    """Whether the passages of `path` are better left on disk, and its format can be streamed."""
    return is_streamed(path) and path.is_file() and path.stat().st_size >= LARGE_BYTES


def stored_passages(
    path: Path, keep_ids: bool, passages: Callable[[], Iterable[Passage]]
) -> PassageFile:
    """The passages of `path` in the index store; `passages` is called where they are not there yet.

    The copy is found again by the file's inode, size and times, so that the file is not read.

    Raises:
        DataError: a malformed record, or the store cannot be written.
    """
    stat = path.stat()
    identity = [FORMAT, keep_ids, str(path.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns]
    key = f"passages-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]}"

    def write(folder: Path) -> tuple[int, str]:
        log.warning("copying the passages of %s into the index store, once", path)
        return write_passages(folder, _told(passages(), count_rows(path)))

    return PassageFile(IndexStore().corpus_folder(key, write))


def _told(passages: Iterable[Passage], total: int | None) -> Iterator[Passage]:
    """The same passages; logs how many have been read, and the time left where `total` is known."""
    start = told = time.monotonic()
    for done, passage in enumerate(passages):
        yield passage
        if done and done % 1000 == 0 and (now := time.monotonic()) - told >= _TOLD_EVERY_S:
            told, seconds_each = now, (now - start) / done
            left = f" of {total:,}, {seconds_each * (total - done):,.0f} s left" if total else ""
            log.warning("copied %s%s", f"{done:,}", left)
