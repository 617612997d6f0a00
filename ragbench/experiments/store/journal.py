"""The journal of a compile: every call as it ends, over all attempts at the compile.

A ledger that is also a file. A compile that was killed and started again replays its finished calls
from DSPy's cache, so the last attempt's calls are what the compile took *as if uncached*, and what
was *billed* is the sum over all attempts of the calls that no cache answered.
"""

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
from ragbench.experiments.store.database import Reader, Store
from ragbench.ledger import OpenLedger, open_ledger
from ragbench.record import Call, Totals, billed, parse_call, total

#: Side of a call that the prompt model answers: it is made by no predictor of the program.
PROMPT = "prompt"
#: Side of the calls that make what all questions share, such as an index.
PREPARATION_SIDE = "preparation"
#: Name of the journal in a compile's working folder.
CALLS = "calls.db"


class CallJournal:
    """Calls by side (student, teacher, prompt, preparation, ...) and attempt, from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        reader = Reader(path)
        attempts = reader.rows("SELECT value FROM run WHERE name = 'session'")
        self.attempt = 1 + (int(attempts[0][0]) if attempts else 0)
        self._old = [
            (side, parse_call(json.loads(value)))
            for side, value in reader.each("SELECT side, value FROM calls ORDER BY id")
        ]
        self._new: list[tuple[str, Call]] = []
        self._lock = threading.Lock()
        self._broken: RunError | None = None

    @contextmanager
    def open(self) -> Iterator[OpenLedger]:
        """A ledger that files every call made inside the block here as well.

        Raises:
            RunError: the journal cannot be written.
        """
        # Not closed: a thread may end its call after the block.
        store = Store(self.path.parent, name=self.path.name)
        store.begin()  # an attempt without calls counts as well
        try:
            with open_ledger(lambda call: self._add(call, store)) as ledger:
                yield ledger
        finally:
            if self._broken is not None:  # a question that failed by it is no result
                raise self._broken

    def sides(self) -> list[str]:
        """Sides that made a call in this attempt, in order of appearance."""
        return list(dict.fromkeys(side for side, _ in self._new))

    def as_if(self, side: str | None = None) -> Totals:
        """What this attempt took, as if nothing had been cached; of one side, or of all."""
        return total(call for name, call in self._new if side in (None, name))

    def billed(self, side: str | None = None) -> Totals:
        """What all attempts sent to a server; of one side, or of all."""
        return billed(call for name, call in self._old + self._new if side in (None, name))

    def to_dict(self) -> dict[str, Any]:
        """The totals of each side and of all, JSON-ready."""
        totals: dict[str, Any] = defaultdict(dict)
        for side in [*self.sides(), None]:
            totals["as_if"][side or "all"] = asdict(self.as_if(side))
            totals["billed"][side or "all"] = asdict(self.billed(side))
        return {"attempts": self.attempt, **totals}

    def _add(self, call: Call, store: Store) -> None:
        context = current()
        side = context.side or "student"
        if context.caller is None and side != PREPARATION_SIDE:
            side = PROMPT
        with self._lock:
            self._new.append((side, call))
        try:
            store.add_call(call, side=side)
        except RunError as error:
            self._broken = error
            raise
