"""Prompts and replies as sent, beside the records: each distinct text once, compressed.

A line of `prompts.jsonl` has the id of a text, the start of its SHA-256, and the text, compressed
by zlib, in base 64. A call names the texts of its messages and of its reply by these ids. They are
for people who look at a run: no score and no table needs them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from ragbench.errors import RunError
from ragbench.experiments.records.jsonl import read_each, unseal
from ragbench.experiments.records.record_writer import RecordWriter
from ragbench.redact import redact

PROMPTS = "prompts.jsonl"


class _Line(BaseModel):
    id: str
    text: str


def parse_prompt(line: bytes) -> _Line:
    """The line of one text.

    Raises:
        ValueError: it was changed, or holds none.
    """
    return _Line.model_validate_json(unseal(line))


class PromptLog:
    """Keeps texts in a run folder; for a `with` block. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROMPTS
        self._writer = RecordWriter(folder, PROMPTS, durable=False)
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._known = {line.row.id for line in read_each(self._path, parse_prompt) if line.row}
        self._writer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.__exit__(*error)

    def keep(self, text: str, write: Callable[[Mapping[str, Any]], object] | None = None) -> str:
        """Keep `text`, keys taken out, and give its id; `write` gets the row of a new one."""
        content = redact(text).encode("utf-8", "replace")
        name = hashlib.sha256(content).hexdigest()[:24]
        with self._lock:
            if name in self._known:
                return name
            self._known.add(name)
        packed = base64.b64encode(zlib.compress(content)).decode()
        (write or self._write)({"id": name, "text": packed})
        return name

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep the row that another log gave to `write`."""
        with self._lock:
            if row["id"] in self._known:
                return
            self._known.add(row["id"])
        self._write(row)

    def _write(self, row: Mapping[str, Any]) -> None:
        with contextlib.suppress(RunError):  # a full disk stops the run when a record is written
            self._writer.write(row)


def read_prompts(folder: Path, wanted: Collection[str]) -> dict[str, str]:
    """The texts of the run in `folder` that are `wanted`, by id; those that there are.

    Raises:
        RunError: the file cannot be read.
    """
    prompts = {}
    for line in read_each(folder / PROMPTS, parse_prompt):
        if line.row and line.row.id in wanted:
            packed = base64.b64decode(line.row.text)
            prompts[line.row.id] = zlib.decompress(packed).decode("utf-8", "replace")
    return prompts
