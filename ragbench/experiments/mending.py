"""Reads a file of checksummed lines one by one, and writes it again without some of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.records import Record, decode
from ragbench.experiments.rundir import write_whole


@dataclass(frozen=True)
class Line:
    """One line: its number from 1, its bytes, and what it holds; None where it cannot be read.

    `torn` marks a last line that was cut short.
    """

    number: int
    raw: bytes
    row: Record | None
    torn: bool = False


def read_all(path: Path) -> list[Line]:
    """Every line of `path`, those that cannot be read too; none where there is no such file.

    Raises:
        RunError: it cannot be read.
    """
    try:
        raws = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    return [_line(number, raw, len(raws)) for number, raw in enumerate(raws, start=1)]


def _line(number: int, raw: bytes, last: int) -> Line:
    try:
        return Line(number, raw, decode(raw))
    except (ValueError, RecursionError):
        return Line(number, raw, None, torn=number == last and not raw.endswith(b"\n"))


def write_without(path: Path, lines: Sequence[Line], numbers: Collection[int]) -> None:
    """Write `path` again without the lines of these numbers; the file as it was stays beside.

    Raises:
        RunError: the folder cannot be written; the file is as it was.
    """
    kept = [line.raw.rstrip(b"\n") + b"\n" for line in lines if line.number not in numbers]
    try:
        backup = free_name(path)
        shutil.copyfile(path, backup)
        with backup.open("rb") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot write {path}.bak: {error.strerror}") from None
    write_whole(path, b"".join(kept))


def free_name(path: Path) -> Path:
    """`path` with .bak, or .bak.2 and so on: an earlier backup is never written over."""
    number = 1
    while True:
        found = path.with_name(f"{path.name}.bak" + (f".{number}" if number > 1 else ""))
        if not found.exists():
            return found
        number += 1
