"""Calls outside records: those of a compile by side, and those of a killed run."""

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
from ragbench.ledger import CompilePhase, OpenLedger, open_ledger
from ragbench.record import Call, Totals, billed, parse_call, total

#: Name of the journal in a compile's working folder.
CALLS = "calls.db"
#: Side of the calls for work that all questions share, such as an index.
PREPARATION_SIDE = "preparation"


def read_calls(reader: Reader, which: str = "1", *values: object) -> Iterator[Call]:
    """Yield the calls in a database, in order.

    Args:
        reader: Open database.
        which: SQL condition on the table `calls`.
        values: Values of the parameters of the condition.

    Raises:
        RunError: A row is damaged.
    """
    query = f"SELECT id, value FROM calls WHERE {which} ORDER BY id"
    for row, value in reader.rows(query, *values):
        try:
            call = parse_call(json.loads(value))
        except (ValueError, TypeError, RecursionError):
            raise RunError(
                f"{reader.path}: row {row} of its calls is damaged. Restore the file from a copy."
            ) from None
        yield call


class CallJournal:
    """Calls of a compile by side (student, teacher, prompt, ...), over all its attempts.

    If a compile was killed and starts again, DSPy's cache replays its finished calls. The calls of
    the last attempt are the usage *as if uncached*. The *billed* usage sums the uncached calls of
    all attempts. `attempt` counts from 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        before = Reader(path).rows("SELECT value FROM run WHERE name = 'session'")
        self.attempt = 1 + sum(int(n) for (n,) in before)
        self._broken: RunError | None = None

    @contextmanager
    def open(self) -> Iterator[OpenLedger]:
        """Open a ledger that also saves every call of the block in the journal.

        Raises:
            RunError: The journal cannot be written.
        """
        # Not closed, because a thread may end its call after the block.
        store = Store(self.path.parent, name=self.path.name)
        store.run()  # An attempt without calls counts too.
        try:
            with open_ledger(lambda call: self._add(call, store)) as ledger:
                yield ledger
        finally:
            if self._broken is not None:  # A question that failed because of it has no result.
                raise self._broken

    def as_if(self, side: str = "") -> Totals:
        """Return the uncached usage of this attempt, for one side or for all."""
        which = "session = ? AND ? IN (side, '')"
        return total(read_calls(Reader(self.path), which, self.attempt, side))

    def billed(self, side: str = "") -> Totals:
        """Return the usage that all attempts sent to servers, for one side or for all."""
        return billed(read_calls(Reader(self.path), "? IN (side, '')", side))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready totals of each side and of all sides."""
        query = "SELECT side FROM calls WHERE session = ? GROUP BY side ORDER BY min(id)"
        as_if = {}
        billed = {}
        for side in (*chain.from_iterable(Reader(self.path).rows(query, self.attempt)), ""):
            as_if[side or "all"] = asdict(self.as_if(side))
            billed[side or "all"] = asdict(self.billed(side))
        return {"attempts": self.attempt, "as_if": as_if, "billed": billed}

    def _add(self, call: Call, store: Store) -> None:
        context = current()
        side = (context.get(CompilePhase) or CompilePhase("student")).name
        if context.caller is None and side != PREPARATION_SIDE:
            side = "prompt"  # Made by no predictor of the program.
        try:
            store.add_call(call, side)
        except RunError as error:
            self._broken = error
            raise
