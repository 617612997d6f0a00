"""Where ragbench keeps what can be fetched or computed again."""

from __future__ import annotations

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
