"""Locate ragbench's cache, make file names durable, and check files before reading."""

import errno
import fcntl
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile


def cache_root() -> Path:
    """Return `RAGBENCH_CACHE`, or `ragbench` in the user's cache folder."""
    if folder := os.environ.get("RAGBENCH_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragbench"


def make_folder(folder: Path) -> None:
    """Make `folder`, and those above it, so that they outlive a loss of power.

    Raises:
        OSError: it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync(path.parent)


def sync(folder: Path) -> None:
    """Make the names in `folder` outlive a loss of power; raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: Maximum bytes of a card, a summary or a compiled program.
MOST_BYTES = 256 * 2**20


def check_regular(path: Path, most: int | None = None) -> None:
    """Check that a path is a regular file of limited size, or does not exist.

    Args:
        path: Path of the file.
        most: Maximum size in bytes. None: any size.

    Raises:
        OSError: it is a pipe, a device, a folder or too large. A pipe would be waited for forever.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    _check(status, most)


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of the regular file `path`.

    Args:
        path: File to read.
        most: Maximum size in bytes.

    Raises:
        OSError: The file is unreadable, not regular, or larger than `most`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe is opened without a wait
    with os.fdopen(handle, "rb") as file:
        _check(os.fstat(handle), most)
        return file.read(most)


def _check(status: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than {most:,}")


def check_locks(folder: Path) -> None:
    """Raise OSError if no file in `folder` can be locked.

    SQLite takes such a file system for one with a busy database, and waits a minute at each try.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(TemporaryFile(dir=folder))
        except OSError:  # it cannot be written, which the next write reports
            return
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
