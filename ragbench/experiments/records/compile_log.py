"""The journal of a compile: every call as it ends, over all attempts at the compile.

A ledger that is also a file. A compile that was killed and started again replays its finished calls
from DSPy's cache, so the last attempt's calls are what the compile took *as if uncached*, and what
was *billed* is the sum over all attempts of the calls that no cache answered.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragbench.context import current
from ragbench.errors import RunError
from ragbench.experiments.records.call_log import wrong_with_call
from ragbench.experiments.records.jsonl import MARK, read_each, unseal
from ragbench.experiments.records.record_writer import RecordWriter
from ragbench.ledger import OpenLedger, open_ledger
from ragbench.paths import make_folder
from ragbench.record import Call, Totals, billed, parse_call, total

#: Side of a call that the prompt model answers: it is made by no predictor of the program.
PROMPT = "prompt"
#: Side of the calls that make what all questions share, such as an index.
PREPARATION = "preparation"
#: Name of the journal in a compile's working folder.
CALLS = "calls.jsonl"


class CallJournal:
    """Calls by side (student, teacher, prompt, preparation, ...) and attempt, from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._old = _read(path)
        self.attempt = 1 + max((row["attempt"] for row in self._old), default=0)
        self._new: list[tuple[str, Call]] = []
        self._lock = threading.Lock()
        self._broken: RunError | None = None

    @contextmanager
    def open(self) -> Iterator[OpenLedger]:
        """A ledger that files every call made inside the block here as well.

        Raises:
            RunError: the journal cannot be written.
        """
        try:
            make_folder(self.path.parent)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from None
        with self._writer() as writer:
            writer.write({"attempt": self.attempt})  # one without calls counts as well
            try:
                with open_ledger(lambda call: self.add(call, writer)) as ledger:
                    yield ledger
            finally:
                if self._broken is not None:  # a question that failed by it is no result
                    raise self._broken

    def _writer(self) -> RecordWriter:
        return RecordWriter(self.path.parent, self.path.name, durable=False)

    def sides(self) -> list[str]:
        """Sides that made a call in this attempt, in order of appearance."""
        return list(dict.fromkeys(side for side, _ in self._new))

    def as_if(self, side: str | None = None) -> Totals:
        """What this attempt took, as if nothing had been cached; of one side, or of all."""
        return total(call for name, call in self._new if side in (None, name))

    def billed(self, side: str | None = None) -> Totals:
        """What all attempts sent to a server; of one side, or of all."""
        rows = [(row["side"], parse_call(row)) for row in self._old] + self._new
        return billed(call for name, call in rows if side in (None, name))

    def to_dict(self) -> dict[str, Any]:
        """The totals of each side and of all, JSON-ready."""
        totals: dict[str, Any] = defaultdict(dict)
        for side in [*self.sides(), None]:
            name = side or "all"
            totals["as_if"][name] = asdict(self.as_if(side))
            totals["billed"][name] = asdict(self.billed(side))
        return {"attempts": self.attempt, **totals}

    def add(self, call: Call, writer: RecordWriter) -> None:
        """File `call`, in memory and in the file."""
        context = current()
        made_by_program = context.caller is not None
        side = context.side or "student"
        if not made_by_program and side != PREPARATION:
            side = PROMPT
        row = {"attempt": self.attempt, "side": side, **asdict(call)}
        with self._lock:
            self._new.append((side, call))
        try:
            if writer.is_open:
                writer.write(row)
            else:  # of a thread that was under way when the compile was stopped
                with self._writer() as late:
                    late.write(row)
        except RunError as error:
            self._broken = error
            raise


def read_calls(path: Path) -> list[Call]:
    """Every call in the journal at `path`, over all attempts.

    Raises:
        RunError: a line is of no call.
    """
    return [parse_call(row) for row in _read(path) if row["model"]]


def _read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    torn = 0
    for line in read_each(path, _parse):
        if line.row is None and not line.torn:
            torn = line.number
            continue
        if line.row is not None:
            row = _checked(line.row, path, line.number)
            if torn and row.keys() - {"attempt"}:
                break
            torn = 0
            rows.append({"side": "", "cached": True, "model": "", **row})
    if torn:  # a kill cuts a line short only where the next attempt starts
        _checked(None, path, torn)
    return rows


def _parse(line: bytes) -> Any:
    """The call or the start of an attempt; no object where the line was changed.

    Lines of an earlier version have no checksum, and may be cut short in the middle of the file.

    Raises:
        ValueError: the line is cut short.
    """
    if MARK not in line:
        return json.loads(line)
    try:
        return json.loads(unseal(line))
    except ValueError:
        if not line.endswith(b"\n"):
            raise
        return "changed"


def _checked(row: Any, path: Path, number: int) -> dict[str, Any]:
    """`row`, a call or the start of an attempt.

    Raises:
        RunError: it is neither: what the compile was billed is not known without it.
    """
    wrong = "" if isinstance(row, dict) else "line"
    if not wrong and not (isinstance(row.get("attempt"), int) and row["attempt"] > 0):
        wrong = "attempt"
    if not wrong and row.keys() != {"attempt"}:
        wrong = wrong_with_call(row) or ("" if isinstance(row.get("side"), str) else "side")
    if wrong:
        raise RunError(
            f"{path} line {number}: {wrong} is missing or wrong, so what was billed is not known; "
            "put the file back, or compile anew with another --out"
        )
    return dict(row)
