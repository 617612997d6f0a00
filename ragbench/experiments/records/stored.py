"""Records as they lie on disk: which there are is known at once, each is read when it is asked for.

A run can have more records than fit in memory. Its file is read through once and every line is
checked; what stays is where each line starts, and what a caller wants to know of every record, such
as a score. The first records stay parsed, so that a run of usual size is read once. The file is
held open: what takes its place later changes nothing.
"""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar, overload

from pydantic import TypeAdapter

from ragbench.errors import RunError
from ragbench.experiments.records.jsonl import RECORDS, Line, parse_line, read_each, unseal
from ragbench.logs import get
from ragbench.record import CUT_OFF, Failure, Record

T = TypeVar("T")

_log = get(__name__)

_UNKNOWN = object()

#: So many records of a file stay parsed.
KEPT = 1_000


class _File:
    """Reads a record by the place of its line in a file, from 0."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = array("Q", [0])
        try:
            self._handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._handle = os.open(os.devnull, os.O_RDONLY)
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from None
        self._close = weakref.finalize(self, os.close, self._handle)

    def add(self, line: Line[Record]) -> None:
        """Note where the next line stands."""
        self._starts.append(self._starts[-1] + len(line.raw))

    def close(self) -> None:
        """Let go of the file, of which nothing is read any more."""
        self._close()

    def __call__(self, place: int) -> Record:
        start, end = self._starts[place : place + 2]
        try:
            return parse_line(os.pread(self._handle, end - start, start))
        except OSError as error:
            raise RunError(f"cannot read {self._path}: {error.strerror}") from None
        except ValueError:
            raise RunError(f"{self._path} was changed while it was read") from None


class Shelf:
    """Records by their place, read when asked for, and what is known of each."""

    def __init__(self, read: Callable[[int], Record]) -> None:
        self._read = read
        self._kept: dict[int, Record] = {}
        # Lists by place: dictionaries took ten times the memory.
        self._known: dict[Callable[[Record], Any], list[Any]] = {}

    def record(self, place: int) -> Record:
        """The record at `place`.

        Raises:
            RunError: it cannot be read any more.
        """
        if place in self._kept:
            return self._kept[place]
        record = self._read(place)
        if len(self._kept) < KEPT:
            self._kept[place] = record
        return record

    def learn(self, place: int, record: Record, wanted: Iterable[Callable[[Record], Any]]) -> None:
        """Keep what each function of `wanted` says of the record at `place`."""
        if len(self._kept) < KEPT:
            self._kept[place] = record
        for function in wanted:
            self._column(function, place)[place] = function(record)

    def knows(self, wanted: Callable[[Record], Any], places: Iterable[int]) -> bool:
        """Whether what `wanted` says of the records at `places` was found out."""
        known = self._known.get(wanted, [])
        return all(place < len(known) and known[place] is not _UNKNOWN for place in places)

    def values(self, places: Collection[int], wanted: Callable[[Record], T]) -> Sequence[T]:
        """What `wanted` says of the record at each place, known at these places at least."""
        known = self._column(wanted, max(places, default=-1))
        for place in places:
            if known[place] is _UNKNOWN:
                known[place] = wanted(self.record(place))
        return known

    def _column(self, wanted: Callable[[Record], Any], place: int) -> list[Any]:
        """What is known of each record, as far as `place`."""
        known = self._known.setdefault(wanted, [])
        known += [_UNKNOWN] * (place + 1 - len(known))
        return known


class StoredRecords(Mapping[str, Record]):
    """Records by question, in the order first asked; `values()` reads them one after another."""

    def __init__(self, shelf: Shelf, places: Mapping[str, int]) -> None:
        self._shelf, self._places = shelf, places

    def __getitem__(self, qid: str) -> Record:
        return self._shelf.record(self._places[qid])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, qid: object) -> bool:
        return qid in self._places

    def __repr__(self) -> str:
        return f"StoredRecords(n={len(self)})"

    def learn(self, wanted: Iterable[Callable[[Record], Any]]) -> None:
        """Find out in one pass what each function of `wanted` says, for `column`."""
        places = self._places.values()
        if unknown := [each for each in wanted if not self._shelf.knows(each, places)]:
            for place in places:
                self._shelf.learn(place, self._shelf.record(place), unknown)

    def column(self, wanted: Callable[[Record], T]) -> dict[str, T]:
        """The value of `wanted` for each record, by question; computed once."""
        known = self._shelf.values(self._places.values(), wanted)
        return {qid: known[place] for qid, place in self._places.items()}

    def only(self, qids: Iterable[str]) -> Self:
        """The records of the questions `qids`, in their order."""
        return type(self)(self._shelf, {qid: self._places[qid] for qid in qids})

    def changed(self, change: Callable[[Record], Record], qids: Iterable[str]) -> Self:
        """The records of `qids`, as `change` makes them when they are read."""
        read = self._shelf.record
        shelf = Shelf(lambda place: change(read(place)))
        return type(self)(shelf, {qid: self._places[qid] for qid in qids})


class RecordList(Sequence[Record]):
    """Records in the order of their file, a question's as often as it has some; likewise read."""

    def __init__(self, shelf: Shelf, places: Sequence[tuple[str, int]] = ()) -> None:
        self._shelf, self._places = shelf, places

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return type(self)(self._shelf, self._places[index])
        return self._shelf.record(self._places[index][1])

    def __len__(self) -> int:
        return len(self._places)

    @property
    def qids(self) -> list[str]:
        """The question of each."""
        return [qid for qid, _ in self._places]

    def only(self, qids: Container[str]) -> RecordList:
        """The records of the questions in `qids`."""
        return RecordList(self._shelf, [pair for pair in self._places if pair[0] in qids])


@dataclass(frozen=True)
class Loaded:
    """The records of a file, the last of each question, in the order first asked.

    A question that a limit cut off has none of them: it counts as not asked.
    """

    records: StoredRecords
    #: The first record of each question.
    first: StoredRecords
    #: Those that a later one replaced, oldest first.
    earlier: RecordList
    #: Of questions that a limit cut off. They are not answered, but what they took was billed.
    cut_off: RecordList
    #: Ids of the questions that were answered; a failed one is not finished.
    finished: frozenset[str]
    #: Numbers of the lines that cannot be used, from 1.
    corrupt: list[int]

    def only(self, qids: Collection[str]) -> Loaded:
        """The records that there are of the questions in `qids`."""
        chosen = [qid for qid in self.records if qid in qids]
        return Loaded(
            self.records.only(chosen),
            self.first.only(chosen),
            self.earlier.only(qids),
            self.cut_off.only(qids),
            self.finished & set(qids),
            self.corrupt,
        )


def read_records(folder: Path, learn: Iterable[Callable[[Record], Any]] = ()) -> Loaded:
    """All records in `folder`; a torn last line is passed over, one that is no record listed.

    What the functions in `learn` say of each record is worked out on the way, for
    `StoredRecords.column`.

    Raises:
        RunError: the records cannot be read.
    """
    learn, index = list(learn), _Index()
    file = _File(folder / RECORDS)
    shelf = Shelf(file)
    for place, line in enumerate(read_each(folder / RECORDS, parse_line)):
        file.add(line)
        index.add(place, line)
        if line.row is not None:
            shelf.learn(place, line.row, learn)
    if index.read <= KEPT:  # they all stay parsed
        file.close()
    return index.loaded(shelf)


def read_finished(folder: Path) -> tuple[frozenset[str], list[int]]:
    """Ids of the questions in `folder` that were answered, and numbers of corrupt lines, from 1.

    Every checksum is compared, but of a record that is whole only its id and failure are read: this
    takes a third of the time of `read_records`.

    Raises:
        RunError: the records cannot be read.
    """
    index = _Index()
    for place, line in enumerate(read_each(folder / RECORDS, _parse_outcome)):
        index.add(place, line)
    return frozenset(index.finished), index.corrupt


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a question."""

    qid: str
    failure: Failure | None

    @property
    def cut_off(self) -> bool:
        return self.failure is not None and self.failure.error == CUT_OFF


@cache
def _outcomes() -> TypeAdapter[_Outcome]:
    return TypeAdapter(_Outcome)


def _parse_outcome(line: bytes) -> _Outcome:
    return _outcomes().validate_json(unseal(line), strict=True)


def tell_corrupt(folder: Path, loaded: Loaded) -> None:
    """Warn of lines that could not be read, if there are any."""
    if loaded.corrupt:
        numbers = ", ".join(map(str, loaded.corrupt[:10]))
        more = f" and {len(loaded.corrupt) - 10} more" if len(loaded.corrupt) > 10 else ""
        _log.warning(
            "%s line %s%s could not be read and is left out", folder / RECORDS, numbers, more
        )


class _Index:
    """Sorts records into those that count, those replaced and those cut off."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.replaced: dict[str, int] = {}  # question -> the first of its records
        self.earlier: list[tuple[str, int]] = []
        self.cut_off: list[tuple[str, int]] = []
        self.finished: set[str] = set()
        self.corrupt: list[int] = []
        self.read = 0

    def add(self, place: int, line: Line[Record] | Line[_Outcome]) -> None:
        record = line.row
        if record is None:
            self.corrupt += [] if line.torn else [line.number]
            return
        self.read += 1
        if record.cut_off:
            self.cut_off.append((record.qid, place))
        else:
            qid = record.qid
            if qid in self.last:
                self.earlier.append((qid, self.last[qid]))
                self.replaced.setdefault(qid, self.last[qid])
            self.last[qid] = place
            (self.finished.discard if record.failure else self.finished.add)(qid)

    def loaded(self, shelf: Shelf) -> Loaded:
        records = StoredRecords(shelf, self.last)
        return Loaded(
            records,
            StoredRecords(shelf, {**self.last, **self.replaced}) if self.replaced else records,
            RecordList(shelf, self.earlier),
            RecordList(shelf, self.cut_off),
            frozenset(self.finished),
            self.corrupt,
        )
