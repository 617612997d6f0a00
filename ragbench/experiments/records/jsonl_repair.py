"""Writes a file of checksummed lines again without some of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.records.files import write_whole


def write_without(path: Path, numbers: Collection[int]) -> None:
    """Write `path` again without the lines of these numbers; the file as it was stays beside.

    Raises:
        RunError: the folder cannot be written; the file is as it was.
    """
    try:
        backup = free_name(path)
        shutil.copyfile(path, backup)
        with backup.open("rb") as file:
            os.fsync(file.fileno())
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise RunError(f"cannot write {path}.bak: {error.strerror}") from None
    kept = [line for number, line in enumerate(lines, start=1) if number not in numbers]
    write_whole(path, b"".join(line.rstrip(b"\n") + b"\n" for line in kept))


def free_name(path: Path) -> Path:
    """`path` with .bak, or .bak.2 and so on: an earlier backup is never written over."""
    number = 1
    while True:
        backup = path.with_name(f"{path.name}.bak" + (f".{number}" if number > 1 else ""))
        if not backup.exists():
            return backup
        number += 1
