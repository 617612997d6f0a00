"""Records: one JSON line per question, written and fsynced as soon as the question ends.

A line holds the record and, as its last key, `sum`: the first 16 hexadecimal digits of the SHA-256
of the rest. A torn last line (the process was killed while writing) is cut off when the file is
opened for writing; a corrupt line elsewhere is reported and left out, and its question counts as
not asked. Where a question has several records, because a failed one was retried, the last counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ragbench.errors import RunError
from ragbench.record import Record, parse_record

RECORDS = "records.jsonl"
#: What stands before the checksum of a line.
MARK = b', "sum": "'

#: How a file is opened to be appended to: a link in its place is not followed.
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)

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
    """What `line` holds.

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


class RecordWriter:
    """Appends records to a run folder, each fsynced before `write` returns. Thread-safe.

    Without `durable`, what was written outlives the process, but not the machine.
    """

    def __init__(self, folder: Path, name: str = RECORDS, *, durable: bool = True) -> None:
        self._path, self._durable = folder / name, durable
        self._lock = threading.Lock()
        self._file: FileIO | None = None

    def __enter__(self) -> Self:
        try:
            # Unbuffered: what a full disk did not take must not be written again when it is closed.
            handle = os.open(self._path, _APPEND, 0o666)
            self._file = open(handle, "ab+", buffering=0)
            _mend_tail(self._file)
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None

    @property
    def is_open(self) -> bool:
        """Whether it can be written to."""
        return self._file is not None

    def write(self, row: Record | Mapping[str, Any]) -> None:
        """Append `row`; it is on disk when this returns.

        Raises:
            RunError: the disk is full or the folder is gone.
        """
        line = encode(row)
        with self._lock:
            if self._file is None:
                raise RunError(f"{self._path} is closed: the run was stopped")
            start = self._file.seek(0, os.SEEK_END)
            try:
                self._check_place(self._file)
                _write_all(self._file, line)
                if self._durable:
                    os.fsync(self._file.fileno())
            except OSError as error:
                self._undo(start)
                raise RunError(f"cannot write {self._path}: {error.strerror}") from None

    def _check_place(self, file: FileIO) -> None:
        """Do nothing if the file is still where it was opened."""
        try:
            same = os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            same = False
        if not same:
            raise RunError(f"{self._path} was removed or replaced while it was written to")

    def _undo(self, start: int) -> None:
        try:
            assert self._file is not None
            self._file.truncate(start)
        except OSError:
            pass  # the next opening cuts the torn line off


def _write_all(file: FileIO, line: bytes) -> None:
    left = memoryview(line)
    while left:  # a nearly full disk takes a part
        left = left[file.write(left) :]


def _mend_tail(file: FileIO) -> None:
    """Cut a torn last line off, so that the next record starts on a line of its own."""
    size = file.seek(0, os.SEEK_END)
    start = _last_line_start(file, size)
    if start == size:
        return
    file.seek(start)
    tail = file.read()
    try:
        unseal(tail)
    except (ValueError, RecursionError):
        if not tail.endswith(b"\n"):
            file.truncate(start)
    else:
        if not tail.endswith(b"\n"):
            file.write(b"\n")


def _last_line_start(file: FileIO, size: int) -> int:
    """The start of the last line, found by reading blocks from the end."""
    block, position = 1 << 16, size
    skip_final = 1  # a newline that ends the file does not start a line
    while position > 0:
        step = min(block, position)
        position -= step
        file.seek(position)
        data = file.read(step)
        at = data.rfind(b"\n", 0, len(data) - skip_final)
        skip_final = 0
        if at >= 0:
            return position + at + 1
    return 0
