"""The records of a run, as they are read: by question, and in columns.

Which records there are is known at once, each is read when asked for. A run can have more than fit
in memory: what is kept of each is the place of its row, and what a caller wanted to know of all,
such as a score. A command says at once which columns it needs (`StoredRecords.compute`), so that
each record is parsed once for all of them. Rows are only ever added: what was found stays as it is
while a run goes on. What cannot be read raises RunError.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias, TypeVar

from ragbench.errors import RunError
from ragbench.experiments.store.reader import Reader
from ragbench.experiments.store.schema import COLUMNS, CUT_OFF, FAILED, digest_of
from ragbench.logs import get
from ragbench.record import Call, Record, parse_record

T = TypeVar("T")
#: Gives what a column has of a record.
Column: TypeAlias = Callable[[Record], Any]

_log = get(__name__)

#: So many records stay parsed.
_PARSED = 100
_JSON = "SELECT value FROM records WHERE id = ?"
_ONE_RECORD = (
    "SELECT records.value, scores.value, scores.digest FROM records "
    "LEFT JOIN scores ON scores.record = records.id WHERE records.id = ?"
)


class _Rows:
    """The rows of a run's records by their ids, and the columns computed of them.

    `price` gives a call the price that it has in this run.
    """

    def __init__(self, reader: Reader, price: Callable[[Call], Call]) -> None:
        self.reader = reader
        self.price = price
        self.columns: dict[Column, dict[int, Any]] = {}
        self._parsed: dict[int, Record] = {}

    def record(self, row: int) -> Record:
        """The record in the row with the id `row`."""
        if row in self._parsed:
            return self._parsed[row]
        for value, scores, digest in self.reader.rows(_ONE_RECORD, row):
            record = self._parse(row, value)
            if scores is not None and digest == digest_of(record.qid, scores):
                record = _with_scores(record, json.loads(scores))
            if len(self._parsed) < _PARSED:
                self._parsed[row] = record
            return record
        raise RunError(f"{self.reader.path} was changed while it was read")

    def _parse(self, row: int, value: str) -> Record:
        try:
            record = parse_record(value)
        except ValueError:
            raise RunError(f"{self.reader.path}: row {row} of its records is no record") from None
        calls = record.ledger.calls
        calls[:] = map(self.price, calls)
        return record


def _with_scores(record: Record, row: Mapping[str, Any]) -> Record:
    """`record` with what models said of it when the run was scored."""
    scores = dict(record.scores)
    for name in row["judged"]:
        if name in row["scores"]:
            scores[name] = row["scores"][name]
    attributed: dict[str, Any] = {}
    for name in ("attribution", "attributed_triples"):
        if row.get(name) is not None:
            attributed[name] = list(map(tuple, row[name]))
    return replace(record, scores=scores, **attributed)


class StoredRecords(Mapping[str, Record]):
    """The last record of each question, in the order first asked; those before it beside them.

    A question that a limit cut off and that has no other record is in `cut_off` alone: it counts as
    not asked. `damaged` are questions with a record that was changed; it is left out.
    """

    def __init__(
        self,
        rows: _Rows,
        attempts: Mapping[str, Sequence[int]],
        cut: Mapping[str, Sequence[int]],
        failed: frozenset[str],
        damaged: Sequence[str] = (),
    ) -> None:
        self._rows = rows
        self._attempts = attempts
        self._cut = cut
        self._failed = failed
        self.damaged = tuple(damaged)
        #: What was worked out of all of these records together.
        self.memo: dict[object, Any] = {}

    def __getitem__(self, qid: str) -> Record:
        return self._rows.record(self._attempts[qid][-1])

    def __iter__(self) -> Iterator[str]:
        return iter(self._attempts)

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, qid: object) -> bool:
        return qid in self._attempts

    def column(self, function: Callable[[Record], T]) -> dict[str, T]:
        """The value of `function` for each record, by question; computed once."""
        self.compute([function])
        values = self._rows.columns[function]
        return {qid: values[rows[-1]] for qid, rows in self._attempts.items()}

    def stored(self) -> Iterator[tuple[str, str]]:
        """Each question and its record as the JSON that was kept, read but not parsed."""
        for qid, rows in self._attempts.items():
            for (value,) in self._rows.reader.rows(_JSON, rows[-1]):
                yield qid, value

    def compute(self, functions: Iterable[Column]) -> None:
        """Compute several columns while every record is read once."""
        columns = []
        for function in functions:
            columns.append((function, self._rows.columns.setdefault(function, {})))
        for rows in self._attempts.values():
            row = rows[-1]
            record = None
            for function, values in columns:
                if row not in values:
                    record = record or self._rows.record(row)
                    values[row] = function(record)

    def only(self, qids: Iterable[str]) -> Self:
        """The records of the questions `qids`, in their order; those that there are."""
        attempts = {}
        cut = {}
        for qid in qids:
            if qid in self._attempts:
                attempts[qid] = self._attempts[qid]
            if qid in self._cut:
                cut[qid] = self._cut[qid]
        return type(self)(self._rows, attempts, cut, self._failed)

    @property
    def finished(self) -> frozenset[str]:
        """Questions that came to their end; one that failed is asked again."""
        return frozenset(self._attempts) - self._failed

    @property
    def n_replaced(self) -> int:
        """How many records a later one of the same question replaced."""
        return sum(len(rows) - 1 for rows in self._attempts.values())

    def replaced(self) -> Iterator[Record]:
        """The records that a later one of the same question replaced."""
        for rows in self._attempts.values():
            yield from map(self._rows.record, rows[:-1])

    @property
    def cut_off_questions(self) -> set[str]:
        """Questions that a limit cut off and that have no other record."""
        return self._cut.keys() - self._attempts.keys()

    def cut_off(self) -> Iterator[Record]:
        """The records of questions when a limit cut them off; what they took was billed."""
        for rows in self._cut.values():
            yield from map(self._rows.record, rows)


def find_records(reader: Reader, price: Callable[[Call], Call]) -> StoredRecords:
    """The records that the database of `reader` has, their calls priced by `price`.

    A record whose digest does not fit is left out, and its question is named in a warning.
    """
    attempts: dict[str, list[int]] = {}
    cut: dict[str, list[int]] = {}
    failed = set[str]()
    damaged = list[str]()
    columns = ", ".join(COLUMNS[:-1])  # the value as bytes: it is not read yet
    query = f"SELECT id, digest, {columns}, CAST(value AS BLOB) FROM records ORDER BY id"
    for row, digest, *values in reader.rows(query):
        qid = values[0]
        state = values[1]
        if digest != digest_of(*values):
            damaged.append(str(qid))
        elif state == CUT_OFF:
            cut.setdefault(qid, []).append(row)
        else:
            attempts.setdefault(qid, []).append(row)
            if state == FAILED:
                failed.add(qid)
            else:
                failed.discard(qid)
    if damaged:
        _log.warning(
            "%s: the record of %s was damaged or changed after it was written, and is left out; "
            "the run's command asks the question again",
            reader.path, ", ".join(damaged),
        )  # fmt: skip
    return StoredRecords(_Rows(reader, price), attempts, cut, frozenset(failed), damaged)
