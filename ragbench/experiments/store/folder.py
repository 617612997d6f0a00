"""The folder of a run, a compile, a search or a sweep: one process at a time works in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ragbench.errors import RunError
from ragbench.experiments.store.files import read_object
from ragbench.logs import LOG, log_to
from ragbench.paths import make_folder

_LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process, making it if need be; the lock dies with the process.

    What is logged meanwhile goes to `log.jsonl` in the folder. A folder that was made and in which
    nothing else was written is removed again.

    Raises:
        RunError: another process holds it, or it cannot be made.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError(f"cannot use the run folder {folder}: {error.strerror}") from None
    try:
        with held(folder), log_to(folder / LOG):
            yield
    finally:
        with contextlib.suppress(OSError):
            if made and {path.name for path in folder.iterdir()} <= {LOG, _LOCK}:
                for name in (LOG, _LOCK):
                    (folder / name).unlink(missing_ok=True)
                for path in made:
                    path.rmdir()  # fails where there is something in it


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder`, which is there, for this process; the lock dies with the process.

    The lock is of the folder itself: there is no file that somebody could delete.

    Raises:
        RunError: another process holds it, or it cannot be opened.
    """
    try:
        release = _lock(folder)
    except (BlockingIOError, Timeout):
        raise RunError(
            f"{folder} is in use by another process; wait for it or give --out"
        ) from None
    except OSError as error:
        raise RunError(f"cannot use the run folder {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        release()


def _lock(folder: Path) -> Callable[[], object]:
    """Lock `folder`, or a file in it where folders cannot be; gives what unlocks it.

    Raises:
        BlockingIOError, Timeout: another process holds it.
        OSError: it cannot be opened.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return _lock_file(folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a network's file system
        os.close(handle)
        return _lock_file(folder)
    return partial(os.close, handle)


def _lock_file(folder: Path) -> Callable[[], object]:
    lock = FileLock(folder / _LOCK)
    lock.acquire(timeout=0)
    return lock.release


def is_claimed(path: Path, asked: Mapping[str, Any], contents: str) -> bool:
    """Whether the file `path` marks its folder as of what is `asked`; False where there is none.

    `contents` is the kind of thing that a folder is marked as, such as "a compile".

    Raises:
        RunError: the file marks it as of something else, or cannot be read.
    """
    if not path.is_file():
        return False
    theirs = read_object(path)
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
