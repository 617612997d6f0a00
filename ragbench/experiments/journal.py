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

import dspy

from ragbench.errors import RunError
from ragbench.experiments.journal_shape import wrong_with_call
from ragbench.ledger import (
    CALLER_KEY,
    LEDGER_KEY,
    PATH_KEY,
    Call,
    FiledCalls,
    Ledger,
    Totals,
    total,
)
from ragbench.optimizers.base import SIDE_KEY

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

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        """A ledger that files every call made inside the block here as well."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        ledger = Ledger()
        with self.path.open("a", encoding="utf-8", buffering=1) as file:
            self._start(file)
            ledger.calls = FiledCalls(lambda call: self.add(call, file))
            with dspy.context(**{LEDGER_KEY: ledger, PATH_KEY: ledger.path}):
                yield ledger

    def sides(self) -> list[str]:
        """Sides that made a call in this attempt, in order of appearance."""
        return list(dict.fromkeys(side for side, _ in self._new))

    def as_if(self, side: str | None = None) -> Totals:
        """What this attempt took, as if nothing had been cached; of one side, or of all."""
        return total(call for name, call in self._new if side in (None, name))

    def billed(self, side: str | None = None) -> Totals:
        """What all attempts sent to a server; of one side, or of all."""
        rows = [(row["side"], Call.from_dict(row)) for row in self._old] + self._new
        return total(call for name, call in rows if side in (None, name) and not call.cached)

    def to_dict(self) -> dict[str, Any]:
        """The totals of each side and of all, JSON-ready."""
        found: dict[str, Any] = defaultdict(dict)
        for side in [*self.sides(), None]:
            name = side or "all"
            found["as_if"][name] = asdict(self.as_if(side))
            found["billed"][name] = asdict(self.billed(side))
        return {"attempts": self.attempt, **found}

    def _start(self, file: Any) -> None:
        # A line that a kill cut short must not swallow the next; it also counts the attempt.
        if self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n"):
            file.write("\n")
        file.write(json.dumps({"attempt": self.attempt}) + "\n")

    def add(self, call: Call, file: Any) -> None:
        """File `call`, in memory and in the file."""
        made_by_program = dspy.settings.get(CALLER_KEY) is not None
        side = dspy.settings.get(SIDE_KEY) or "student"
        if not made_by_program and side != PREPARATION:
            side = PROMPT
        line = json.dumps({"attempt": self.attempt, "side": side, **asdict(call)}) + "\n"
        with self._lock:
            self._new.append((side, call))
            if not file.closed:
                file.write(line)
            else:  # of a thread that was under way when the compile was stopped
                with self.path.open("a", encoding="utf-8") as late:
                    late.write(line)


def read_calls(path: Path) -> list[Call]:
    """Every call in the journal at `path`, over all attempts.

    Raises:
        RunError: a line is of no call.
    """
    return [Call.from_dict(row) for row in _read(path) if row["model"]]


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # cut short by a kill
        rows.append({"side": "", "cached": True, "model": "", **_checked(row, path, number)})
    return rows


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
