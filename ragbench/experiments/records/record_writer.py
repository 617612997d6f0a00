"""Appends records to a file: each is on disk before its writer goes on, and many share one sync."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Self

from ragbench.errors import RunError
from ragbench.experiments.records.jsonl import RECORDS, encode, unseal
from ragbench.paths import sync
from ragbench.record import Record

#: How a file is opened to be appended to: a link in its place is not followed.
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class RecordWriter:
    """Appends records to a run folder, each fsynced before `write` returns. Thread-safe.

    Threads that write while another one syncs share the next sync. Without `durable`, what was
    written outlives the process, but not the machine, nor the removal of the file.
    """

    def __init__(self, folder: Path, name: str = RECORDS, *, durable: bool = True) -> None:
        self._path, self._durable = folder / name, durable
        self._lock, self._syncing = threading.Lock(), threading.Lock()
        self._file: FileIO | None = None
        self._size = self._synced = 0  # bytes of the file: written, and known to be on disk
        self._failure: OSError | None = None  # of a sync

    def __enter__(self) -> Self:
        try:
            is_new = not self._path.exists()
            # Unbuffered: what a full disk did not take must not be written again when it is closed.
            handle = os.open(self._path, _APPEND, 0o666)
            self._file = open(handle, "ab+", buffering=0)
            _mend_tail(self._file)
            self._size = self._synced = self._file.seek(0, os.SEEK_END)
            if is_new and self._durable:
                sync(self._path.parent)
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}") from None
        return self

    def __exit__(self, *error: object) -> None:
        with self._syncing, self._lock:
            if self._file:
                if self._durable and self._synced < self._size:
                    with contextlib.suppress(OSError):  # the run was stopped before its own sync
                        os.fsync(self._file.fileno())
                self._file.close()
                self._file = None

    @property
    def is_open(self) -> bool:
        """Whether it can be written to."""
        return self._file is not None

    def write(self, row: Record | Mapping[str, Any] | bytes) -> None:
        """Append `row`, or the line that `encode` made of one; it is on disk when this returns.

        Raises:
            RunError: the disk is full or the folder is gone.
        """
        line = row if isinstance(row, bytes) else encode(row)
        try:
            end = self._append(line)
            if self._durable:
                self._sync(end)
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}") from None

    def _append(self, line: bytes) -> int:
        """The size of the file with `line` at its end."""
        with self._lock:
            if self._file is None:
                raise RunError(f"{self._path} is closed: the run was stopped")
            if self._failure is not None:
                raise self._failure
            start = self._size
            try:
                if self._durable:
                    self._check_place(self._file)
                _write_all(self._file, line)
            except OSError:
                self._undo(start)
                raise
            self._size = start + len(line)
            return self._size

    def _sync(self, end: int) -> None:
        """Return when the first `end` bytes are on disk."""
        with self._syncing:
            if self._synced >= end or self._file is None:
                return
            with self._lock:
                size = self._size
            try:
                # The system reports an error to one sync alone.
                if self._failure is not None:
                    raise self._failure
                os.fsync(self._file.fileno())
            except OSError as error:
                with self._lock:
                    self._failure = error
                    self._undo(self._synced)  # no write of what follows has returned
                raise
            self._synced = size

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
