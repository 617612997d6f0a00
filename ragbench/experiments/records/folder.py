"""The folder of a run, a compile, a search or a sweep: one process at a time works in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ragbench.errors import RunError
from ragbench.experiments.config import refreshed
from ragbench.experiments.records.files import read_object
from ragbench.logs import LOG, log_to
from ragbench.paths import make_folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process, making it if need be; the lock dies with the process.

    What is logged meanwhile goes to `log.jsonl` in the folder.

    Raises:
        RunError: another process holds it, or it cannot be made.
    """
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError(f"cannot use the run folder {folder}: {error.strerror}") from None
    with held(folder), log_to(folder / LOG):
        yield


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder`, which is there, for this process; the lock dies with the process.

    Raises:
        RunError: another process holds it, or it cannot be written.
    """
    try:
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(
            f"{folder} is in use by another process; wait for it or give --out"
        ) from None
    except OSError as error:
        raise RunError(f"cannot use the run folder {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def is_claimed(path: Path, asked: Mapping[str, Any], contents: str) -> bool:
    """Whether the file `path` marks its folder as of what is `asked`; False where there is none.

    `contents` is the kind of thing that a folder is marked as, such as "a compile".

    Raises:
        RunError: the file marks it as of something else, or cannot be read.
    """
    if not path.is_file():
        return False
    theirs = refreshed(read_object(path), asked)
    for key, new in asked.items():
        if theirs.get(key) != new:
            more = _difference(theirs.get(key), new)
            raise RunError(
                f"{path.parent} holds {contents} with another {key}{more}; give another --out"
            )
    return True


def _difference(old: Any, new: Any) -> str:
    """Where two values differ first, such as " (seed=1, not 2)"; empty if it cannot be said."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return ""
    changed = next((key for key in new if old.get(key) != new[key]), None)
    return f" ({changed}={old.get(changed)!r}, not {new[changed]!r})" if changed else ""
