"""Calls that are in no record: those of a compile by side, and those of a run that was killed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from ragbench.context import current
from ragbench.errors import RunError
from ragbench.experiments.store.database import Store
from ragbench.experiments.store.reader import Reader
from ragbench.ledger import OpenLedger, Side, open_ledger
from ragbench.record import Call, Totals, billed, parse_call, total

#: Name of the journal in a compile's working folder.
CALLS = "calls.db"
#: Side of the calls that make what all questions share, such as an index.
PREPARATION_SIDE = "preparation"


def read_calls(reader: Reader, which: str = "1", *values: object) -> Iterator[Call]:
    """The calls in the database of `reader` for which the SQL condition `which` holds, in order."""
    query = f"SELECT id, value FROM calls WHERE {which} ORDER BY id"
    for row, value in reader.rows(query, *values):
        try:
            call = parse_call(json.loads(value))
        except (ValueError, TypeError, RecursionError):
            raise RunError(
                f"{reader.path}: row {row} of its calls is damaged; put the file back"
            ) from None
        yield call


class CallJournal:
    """The calls of a compile by side (student, teacher, prompt, ...), over all attempts at it.

    A compile that was killed and is started again replays its finished calls from DSPy's cache: the
    last attempt's calls are what it took *as if uncached*, and what was *billed* is the sum over
    all attempts of the calls that no cache answered. `attempt` counts from 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        before = Reader(path).rows("SELECT value FROM run WHERE name = 'session'")
        self.attempt = 1 + sum(int(n) for (n,) in before)
        self._broken: RunError | None = None

    @contextmanager
    def open(self) -> Iterator[OpenLedger]:
        """A ledger that files every call made inside the block here as well.

        Raises:
            RunError: the journal cannot be written.
        """
        # Not closed: a thread may end its call after the block.
        store = Store(self.path.parent, name=self.path.name)
        store.run()  # an attempt without calls counts as well
        try:
            with open_ledger(lambda call: self._add(call, store)) as ledger:
                yield ledger
        finally:
            if self._broken is not None:  # a question that failed by it is no result
                raise self._broken

    def as_if(self, side: str = "") -> Totals:
        """What this attempt took, as if nothing had been cached; of one side, or of all."""
        which = "session = ? AND ? IN (side, '')"
        return total(read_calls(Reader(self.path), which, self.attempt, side))

    def billed(self, side: str = "") -> Totals:
        """What all attempts sent to a server; of one side, or of all."""
        return billed(read_calls(Reader(self.path), "? IN (side, '')", side))

    def to_dict(self) -> dict[str, Any]:
        """The totals of each side and of all, JSON-ready."""
        query = "SELECT side FROM calls WHERE session = ? GROUP BY side ORDER BY min(id)"
        as_if = {}
        billed = {}
        for side in (*chain.from_iterable(Reader(self.path).rows(query, self.attempt)), ""):
            as_if[side or "all"] = asdict(self.as_if(side))
            billed[side or "all"] = asdict(self.billed(side))
        return {"attempts": self.attempt, "as_if": as_if, "billed": billed}

    def _add(self, call: Call, store: Store) -> None:
        context = current()
        side = (context.get(Side) or Side("student")).name
        if context.caller is None and side != PREPARATION_SIDE:
            side = "prompt"  # the prompt model's: no predictor of the program made it
        try:
            store.add_call(call, side=side)
        except RunError as error:
            self._broken = error
            raise
