"""Records: one JSON line per question, written and fsynced as soon as the question ends.

A line holds the record and, as its last key, `sum`: the first 16 hexadecimal digits of the SHA-256
of the rest. A torn last line (the process was killed while writing) is cut off when the file is
opened for writing; a corrupt line elsewhere is reported and left out, and its question counts as
not asked. Where a question has several records, because a failed one was retried, the last counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ragbench.errors import RunError
from ragbench.record import Record, parse_record

RECORDS = "records.jsonl"
#: What stands before the checksum of a line.
MARK = b', "sum": "'

Row = dict[str, Any]
T = TypeVar("T")
#: What a line holds, checksum included; raises ValueError where it cannot be used.
Parse = Callable[[bytes], T]


def encode(row: Record | Mapping[str, Any]) -> bytes:
    """The line of `row`, newline included."""
    if isinstance(row, Record):
        row = row.to_dict()
    # A lone surrogate (a model can write one) has no UTF-8; "?" takes its place.
    body = json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return body[:-1] + MARK + _digest(body).encode() + b'"}\n'


def unseal(line: bytes) -> bytes:
    """The JSON object of `line` without its checksum.

    Raises:
        ValueError: the line is torn or was changed.
    """
    body, mark, tail = line.rstrip(b"\n").rpartition(MARK)
    if not mark or not tail.endswith(b'"}'):
        raise ValueError("no checksum")
    body += b"}"
    if _digest(body) != tail[:-2].decode("ascii", "replace"):
        raise ValueError("checksum does not match")
    return body


def decode(line: bytes) -> Row:
    """The row in `line`.

    Raises:
        ValueError: the line is torn or was changed.
    """
    row = json.loads(unseal(line))
    if not isinstance(row, dict) or "qid" not in row:
        raise ValueError("not a record")
    return row


def parse_line(line: bytes) -> Record:
    """The record of `line`.

    Raises:
        ValueError: the line is torn, was changed, or holds no record.
    """
    return parse_record(unseal(line))


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


@dataclass(frozen=True)
class Line(Generic[T]):
    """One line: its number from 1, its bytes, and what it holds; None where it cannot be used.

    `torn` marks a last line that was cut short.
    """

    number: int
    raw: bytes
    row: T | None
    torn: bool = False


def read_each(path: Path, parse: Parse[T]) -> Iterator[Line[T]]:
    """Every line of `path`, those that cannot be used too; none where there is no such file.

    Raises:
        RunError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                yield _line(number, raw, parse)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None


def _line(number: int, raw: bytes, parse: Parse[T]) -> Line[T]:
    try:
        return Line(number, raw, parse(raw))
    except (ValueError, RecursionError):
        return Line(number, raw, None, torn=not raw.endswith(b"\n"))


#: What keeps a line from being used, such as the name of a field; empty if nothing does.
Wrong = Callable[[Row], str]


def usable(wrong: Wrong) -> Parse[Row]:
    """Reads a line that `wrong` finds nothing wrong with."""

    def parse(line: bytes) -> Row:
        row = decode(line)
        if where := wrong(row):
            raise ValueError(where)
        return row

    return parse


def read_lines(path: Path, wrong: Wrong = lambda row: "") -> tuple[list[Row], list[int]]:
    """Every line of `path` that can be used, in order, and the numbers of corrupt ones.

    A torn last line is passed over; a file that does not exist has no lines.

    Raises:
        RunError: the file cannot be read.
    """
    rows, corrupt = [], []
    for line in read_each(path, usable(wrong)):
        if line.row is not None:
            rows.append(line.row)
        elif not line.torn:
            corrupt.append(line.number)
    return rows, corrupt
