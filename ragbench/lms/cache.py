"""DSPy's cache of answers, kept on disk where nothing in it can run code."""

from __future__ import annotations

from pathlib import Path

import dspy

from ragbench.lms.local import cache_root

DISK_LIMIT_BYTES = 10 * 10**9
MEMORY_ENTRIES = 20_000


def configure_cache(folder: Path | None = None) -> Path:
    """Use `folder` (by default `lm` in ragbench's cache folder) for DSPy's cache; returns it.

    The cache is in DSPy's restricted mode: plain data alone is loaded from it.
    """
    folder = folder or cache_root() / "lm"
    folder.mkdir(parents=True, exist_ok=True)
    dspy.configure_cache(
        enable_disk_cache=True,
        enable_memory_cache=True,
        disk_cache_dir=str(folder),
        disk_size_limit_bytes=DISK_LIMIT_BYTES,
        memory_max_entries=MEMORY_ENTRIES,
        restrict_pickle=True,
    )
    return folder
