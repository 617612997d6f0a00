"""Folders: where ragbench keeps what can be fetched or computed again, and how names last."""

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """The folder of all that can be fetched or computed again.

    `RAGBENCH_CACHE`, or else `ragbench` in the platform's user cache folder.
    """
    if given := os.environ.get("RAGBENCH_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ragbench"


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
    """Make the names in `folder` outlive a loss of power.

    Raises:
        OSError: it cannot be done.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
