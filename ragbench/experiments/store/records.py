"""Records of a run, by question and in columns.

One query reads the columns that facts hold (`facts.stored_columns`) for all records. For other
columns, each record is parsed once for all columns that are requested together
(`StoredRecords.compute`). Rows are only added, so a result stays valid while a run continues.
Unreadable data raises RunError.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Self, TypeVar

from ragbench.errors import RunError
from ragbench.experiments.store.facts import Column, Facts, facts_of, parse_facts, stored_columns
from ragbench.experiments.store.reader import Reader
from ragbench.experiments.store.schema import COLUMNS, CUT_OFF, FAILED
from ragbench.logs import get
from ragbench.record import Call, Record, parse_record
from ragbench.redact import digest_of

T = TypeVar("T")

_log = get(__name__)

#: Value of a row that is not computed.
_ABSENT: Any = object()
#: Maximum number of parsed records in memory.
_PARSED = 100
_JSON = "SELECT value FROM records WHERE id = ?"
_ONE_RECORD = (
    "SELECT records.value, scores.value, scores.digest FROM records "
    "LEFT JOIN scores ON scores.record = records.id WHERE records.id = ?"
)
#: Ids of the prompts and the reply of each call of a record.
_TEXT_IDS = """
WITH calls AS (
    SELECT call.value FROM records, json_each(records.value, '$.ledger.calls') AS call
    WHERE records.id = ?)
SELECT prompt.value FROM calls, json_each(calls.value, '$.prompt') AS prompt
UNION SELECT calls.value ->> 'reply' FROM calls
"""
_FACTS = "SELECT record, value, digest FROM facts"


class _Rows:
    """Rows of a run's records by id, and the columns computed from them.

    `price` applies the price of this run to a call.
    """

    def __init__(self, reader: Reader, price: Callable[[Call], Call]) -> None:
        self.reader = reader
        self.price = price
        #: Position of each row in the columns.
        self.places: dict[int, int] = {}
        self.columns: dict[Column, list[Any]] = {}
        self._parsed: dict[int, Record] = {}

    @cached_property
    def facts(self) -> dict[int, Facts]:
        """Facts of each row, without rows whose facts are damaged."""
        by_row = {}
        for row, value, digest in self.reader.rows(_FACTS):
            if digest == digest_of(value):
                facts = parse_facts(value)
                if facts is not None:
                    by_row[row] = facts
        return by_row

    def compute(self, columns: Iterable[Column], rows: Sequence[int]) -> None:
        """Compute `columns` of `rows` from their facts, or from the parsed records."""
        stored = stored_columns()
        places = [self.places.setdefault(row, len(self.places)) for row in rows]
        missing: dict[int, list[Column]] = {}
        for column in columns:
            values = self.columns.setdefault(column, [])
            values.extend([_ABSENT] * (len(self.places) - len(values)))
            of_facts = stored.get(column)
            for row, place in zip(rows, places, strict=True):
                if values[place] is not _ABSENT:
                    continue
                facts = self.facts.get(row) if of_facts else None
                if of_facts and facts:
                    values[place] = of_facts(facts)
                else:
                    missing.setdefault(row, []).append(column)
        for row, absent in missing.items():
            record = self.record(row)
            for column in absent:
                self.columns[column][self.places[row]] = column(record)

    def values(self, column: Column, rows: Iterable[int]) -> list[Any]:
        """Return the computed values of `column` for `rows`."""
        computed = self.columns[column]
        return [computed[self.places[row]] for row in rows]

    def record(self, row: int) -> Record:
        """Return the record in the row with the id `row`."""
        if row in self._parsed:
            return self._parsed[row]
        for value, scores, digest in self.reader.rows(_ONE_RECORD, row):
            record = self._parse(row, value)
            if scores is not None and digest == digest_of(record.qid, scores):
                try:
                    record = _with_scores(record, json.loads(scores))
                except (ValueError, TypeError, AttributeError):
                    raise RunError(
                        f"{self.reader.path}: row {row} has no readable scores"
                    ) from None
            if len(self._parsed) < _PARSED:
                self._parsed[row] = record
            return record
        raise RunError(f"{self.reader.path} was changed during the read")

    def _parse(self, row: int, value: str) -> Record:
        try:
            record = parse_record(value)
        except ValueError:
            raise RunError(f"{self.reader.path}: row {row} of records is not a record") from None
        calls = record.ledger.calls
        calls[:] = map(self.price, calls)
        return record


def _with_scores(record: Record, row: Mapping[str, Any]) -> Record:
    """Return `record` with the results of models from the scoring of the run."""
    scores = dict(record.scores)
    stored = row.get("scores", {})
    for name in row.get("judged", ()):
        if name in stored:
            scores[name] = stored[name]
    attributed: dict[str, Any] = {}
    for name in ("attribution", "attributed_triples"):
        if row.get(name) is not None:
            attributed[name] = list(map(tuple, row[name]))
    return replace(record, scores=scores, **attributed)


class StoredRecords(Mapping[str, Record]):
    """The latest record of each question, in the order first asked, and access to earlier ones.

    A question that a limit interrupted and that has no other record is not in the mapping. It
    counts as not asked (`cut_off_questions`). `damaged` lists questions with a changed record,
    which is omitted.
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
        #: Cached results that depend on all of these records.
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
        """Return the value of `function` for each record by question; computed once."""
        self.compute([function])
        latest = [rows[-1] for rows in self._attempts.values()]
        return dict(zip(self._attempts, self._rows.values(function, latest), strict=True))

    def column_beside(self, function: Callable[[Record], T]) -> list[T]:
        """Return the value of `function` for replaced and interrupted records."""
        rows: list[int] = []
        for attempts in self._attempts.values():
            rows += attempts[:-1]
        for cut in self._cut.values():
            rows += cut
        self._rows.compute([function], rows)
        return self._rows.values(function, rows)

    def stored(self) -> Iterator[tuple[str, str]]:
        """Yield each question with the stored JSON of its record, without parsing it."""
        for qid, rows in self._attempts.items():
            for (value,) in self._rows.reader.rows(_JSON, rows[-1]):
                yield qid, value

    def text_ids(self) -> list[str]:
        """Return the sorted ids of the saved prompts and replies, without parsing a record."""
        ids: set[str] = set()
        for rows in self._attempts.values():
            ids.update(name for (name,) in self._rows.reader.rows(_TEXT_IDS, rows[-1]) if name)
        return sorted(ids)

    def with_other_facts(self) -> list[str]:
        """Return questions whose stored facts differ from those of their records."""
        facts = self._rows.facts
        written = {row for row, *_ in self._rows.reader.rows(_FACTS)}  # A kill may lose some.
        differ = []
        for row, record in self.by_row():
            if row in written and facts.get(row) != parse_facts(facts_of(record)):
                differ.append(record.qid)
        return differ

    def by_row(self) -> Iterator[tuple[int, Record]]:
        """Yield every record with its row, replaced and interrupted ones included."""
        for row in chain.from_iterable((*self._attempts.values(), *self._cut.values())):
            yield row, self._rows.record(row)

    def compute(self, functions: Iterable[Column]) -> None:
        """Compute several columns and parse every record at most once."""
        self._rows.compute(functions, [rows[-1] for rows in self._attempts.values()])

    def free(self, *columns: Column) -> None:
        """Free the memory of facts and of `columns`. They are computed again if needed."""
        self._rows.__dict__.pop("facts", None)
        for column in columns:
            self._rows.columns.pop(column, None)

    def only(self, qids: Iterable[str]) -> Self:
        """Return the records of the questions `qids`, in that order, without missing ones."""
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
        """Questions with an answer. Failed ones are repeated."""
        return frozenset(self._attempts) - self._failed

    @property
    def n_replaced(self) -> int:
        """Number of records that a later one of the same question replaced."""
        return sum(len(rows) - 1 for rows in self._attempts.values())

    @property
    def cut_off_questions(self) -> set[str]:
        """Questions that a limit interrupted and that have no other record."""
        return self._cut.keys() - self._attempts.keys()


def find_records(
    reader: Reader, price: Callable[[Call], Call], *, check: bool = False
) -> StoredRecords:
    """Find the records in a database.

    Args:
        reader: The open database.
        price: Function that applies the price of the run to a call.
        check: Verify digests. A record with a wrong digest is omitted, with a warning.

    Returns:
        The records by question.
    """
    attempts: dict[str, list[int]] = {}
    cut: dict[str, list[int]] = {}
    failed = set[str]()
    damaged = list[str]()
    checked = ""
    if check:
        columns = ", ".join(COLUMNS[:-1])  # The value is read as bytes, because it is not parsed.
        checked = f", digest, {columns}, CAST(value AS BLOB)"
    query = f"SELECT id, qid, state{checked} FROM records ORDER BY id"
    for row, qid, state, *values in reader.rows(query):
        if values and values[0] != digest_of(*values[1:]):
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
            "%s: skipping the record of %s, which was damaged or changed. "
            "The run's command asks the question again.",
            reader.path, ", ".join(damaged),
        )  # fmt: skip
    return StoredRecords(_Rows(reader, price), attempts, cut, frozenset(failed), damaged)
