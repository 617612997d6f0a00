"""Folders: where ragbench keeps what can be fetched or computed again, and how names last."""

import os
from pathlib import Path


def cache_root() -> Path:
    """`RAGBENCH_CACHE`, or `ragbench` in the user's cache folder: what can be had again."""
    if given := os.environ.get("RAGBENCH_CACHE"):
        return Path(given).expanduser()
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
