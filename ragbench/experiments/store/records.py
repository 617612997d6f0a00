"""What is read of a run: its records, and the calls, texts, scores and judges' replies beside them.

Which records there are is known at once, each is read when asked for. A run can have more than fit
in memory: what is kept of each is the place of its row, and what a caller wanted to know of all,
such as a score. The first ones stay parsed, so that a run of usual size is read once. Rows are only
ever added: what was found stays as it is while a run goes on. What cannot be read raises RunError.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from ragbench.context import current
from ragbench.errors import RunError
from ragbench.experiments.store.card import is_run, read_card
from ragbench.experiments.store.database import (
    COLUMNS,
    CUT_OFF,
    DATABASE,
    FAILED,
    Reader,
    Store,
    digest_of,
)
from ragbench.ledger import OpenLedger, Side, open_ledger
from ragbench.lms.prices import parse_price
from ragbench.logs import get
from ragbench.record import Call, Record, Totals, billed, parse_call, parse_record, total, was_sent

T = TypeVar("T")

_log = get(__name__)

#: So many records stay parsed.
_PARSED = 1_000
#: Name of the journal in a compile's working folder.
CALLS = "calls.db"
#: Side of the calls that make what all questions share, such as an index.
PREPARATION_SIDE = "preparation"


def _priced(folder: Path) -> Callable[[Call], Call]:
    """Gives a call of the run's main LM the price that was not known when it was made."""
    card = read_card(folder) if is_run(folder) else None
    if card is None or not card.price:
        return lambda call: call
    price, model = parse_price(card.price), card.model
    return lambda call: price.fill(call) if call.model == model else call


class _Rows:
    """The rows of a run's records, read by their ids, and what is known of each record."""

    def __init__(self, folder: Path) -> None:
        self.reader, self._priced = Reader(folder / DATABASE), _priced(folder)
        self._parsed: dict[int, Record] = {}
        self.known: dict[Callable[[Record], Any], dict[int, Any]] = defaultdict(dict)

    def record(self, row: int) -> Record:
        if row in self._parsed:
            return self._parsed[row]
        query = (
            "SELECT records.value, scores.value, scores.digest FROM records "
            "LEFT JOIN scores ON scores.record = records.id WHERE records.id = ?"
        )
        for value, scored, digest in self.reader.rows(query, row):
            try:
                record = parse_record(value)
            except ValueError:
                why = f"{self.reader.path}: row {row} of its records is no record"
                raise RunError(why) from None
            calls = [self._priced(call) for call in record.ledger.calls]
            record = replace(record, ledger=replace(record.ledger, calls=calls))
            if scored is not None and digest == digest_of(record.qid, scored):
                record = _with_scores(record, json.loads(scored))
            if len(self._parsed) < _PARSED:
                self._parsed[row] = record
            return record
        raise RunError(f"{self.reader.path} was changed while it was read")


def _with_scores(record: Record, scored: Mapping[str, Any]) -> Record:
    """`record` with what models said of it when the run was scored."""
    said = {name: scored["scores"][name] for name in scored["judged"] if name in scored["scores"]}
    facts, triples = scored.get("attribution"), scored.get("attributed_triples")
    return replace(
        record,
        scores={**record.scores, **said},
        attribution=facts and [(title, sentence) for title, sentence in facts],
        attributed_triples=triples and [(a, b, c) for a, b, c in triples],
    )


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
        self._rows, self._attempts, self._cut, self._failed = rows, attempts, cut, failed
        self.damaged = tuple(damaged)

    def __getitem__(self, qid: str) -> Record:
        return self._rows.record(self._attempts[qid][-1])

    def __iter__(self) -> Iterator[str]:
        return iter(self._attempts)

    def __len__(self) -> int:
        return len(self._attempts)

    def __contains__(self, qid: object) -> bool:
        return qid in self._attempts

    def column(self, wanted: Callable[[Record], T]) -> dict[str, T]:
        """The value of `wanted` for each record, by question; computed once."""
        self.compute([wanted])
        known = self._rows.known[wanted]
        return {qid: known[rows[-1]] for qid, rows in self._attempts.items()}

    def compute(self, wanted: Iterable[Callable[[Record], Any]]) -> None:
        """Compute several columns while every record is read once."""
        columns = [(each, self._rows.known[each]) for each in wanted]
        for *_, row in self._attempts.values():
            for each, known in columns:
                if row not in known:
                    known[row] = each(self._rows.record(row))

    def only(self, qids: Iterable[str]) -> Self:
        """The records of the questions `qids`, in their order; those that there are."""
        wanted = list(qids)
        attempts = {qid: self._attempts[qid] for qid in wanted if qid in self._attempts}
        cut = {qid: self._cut[qid] for qid in wanted if qid in self._cut}
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
        return (self._rows.record(row) for rows in self._attempts.values() for row in rows[:-1])

    @property
    def cut_off_questions(self) -> set[str]:
        """Questions that a limit cut off and that have no other record."""
        return set(self._cut) - set(self._attempts)

    def cut_off(self) -> Iterator[Record]:
        """The records of questions when a limit cut them off; what they took was billed."""
        return (self._rows.record(row) for rows in self._cut.values() for row in rows)


def read_records(folder: Path) -> StoredRecords:
    """The records of the run in `folder`; none where it is no run.

    A record whose digest does not fit is left out, and its question is named in a warning.
    """
    rows = _Rows(folder)
    attempts: dict[str, list[int]] = {}
    cut: dict[str, list[int]] = {}
    failed, damaged = set[str](), []
    names = ", ".join(COLUMNS[:-1])  # the value as bytes: it is not read yet
    query = f"SELECT id, digest, {names}, CAST(value AS BLOB) FROM records ORDER BY id"
    for row, digest, *values in rows.reader.rows(query):
        qid, state = values[0], values[1]
        if digest != digest_of(*values):
            damaged.append(str(qid))
        elif state == CUT_OFF:
            cut.setdefault(qid, []).append(row)
        else:
            attempts.setdefault(qid, []).append(row)
            (failed.add if state == FAILED else failed.discard)(qid)
    if damaged:
        _log.warning(
            "%s: the record of %s was damaged or changed after it was written, and is left out; "
            "the run's command asks the question again",
            rows.reader.path, ", ".join(damaged),
        )  # fmt: skip
    return StoredRecords(rows, attempts, cut, frozenset(failed), damaged)


def read_texts(folder: Path, records: Iterable[Record]) -> dict[str, str]:
    """The prompts and replies that the run in `folder` kept of the calls of `records`, by id."""
    calls = (call for record in records for call in record.ledger.calls)
    wanted = {name for call in calls for name in (*call.prompt, call.reply)} - {""}
    reader, texts = Reader(folder / DATABASE), {}
    for name in wanted:
        for (packed,) in reader.rows("SELECT text FROM prompts WHERE id = ?", name):
            try:
                texts[name] = zlib.decompress(packed).decode("utf-8", "replace")
            except (zlib.error, TypeError):
                _log.warning("%s: a text of a call is damaged and left out", reader.path)
    return texts


def read_replies(folder: Path) -> list[dict[str, Any]]:
    """What judges said of the run in `folder`, and what became of batches, oldest first."""
    path, rows = folder / DATABASE, []
    query = "SELECT id, value, digest FROM replies ORDER BY id"
    for number, value, digest in Reader(path).rows(query):
        if digest != digest_of(value):
            raise RunError(f"{path}: row {number} of its replies is damaged; put the file back")
        rows.append(json.loads(value))
    return rows


def read_scores(folder: Path) -> dict[str, dict[str, float | None]]:
    """The scores that the answers of the run in `folder` were given, by question."""
    query = (
        "SELECT qid, scores.value, scores.digest FROM answers "
        "JOIN scores ON scores.record = answers.id"
    )
    return {
        qid: json.loads(value)["scores"]
        for qid, value, digest in Reader(folder / DATABASE).rows(query)
        if digest == digest_of(qid, value)
    }


def lost_calls(folder: Path) -> list[Call]:
    """Calls of questions in `folder` that are in no record: the run was killed, or goes on."""
    return list(_calls(folder / DATABASE, "qid != ''"))


def preparation_calls(folder: Path) -> list[Call]:
    """Calls that made what all questions of the run in `folder` share, finished or not."""
    return list(_calls(folder / DATABASE, "qid = ''"))


def billed_calls(path: Path) -> Iterator[Call]:
    """The calls to servers that the database at `path` knows of, a run's or a compile's.

    Those of questions that were asked again, or left no record, are among them.
    """
    priced = _priced(path.parent)
    for (value,) in Reader(path).rows("SELECT value FROM records"):
        calls = map(parse_call, json.loads(value)["ledger"]["calls"])
        yield from map(priced, filter(was_sent, calls))
    yield from filter(was_sent, _calls(path, "1"))


def _calls(path: Path, which: str, *values: object) -> Iterator[Call]:
    priced = _priced(path.parent)
    query = f"SELECT id, value FROM calls WHERE {which} ORDER BY id"
    for number, value in Reader(path).rows(query, *values):
        try:
            call = parse_call(json.loads(value))
        except (ValueError, TypeError, RecursionError):
            why = f"{path}: row {number} of its calls is damaged; put the file back"
            raise RunError(why) from None
        yield priced(call)


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
        return total(_calls(self.path, "session = ? AND ? IN (side, '')", self.attempt, side))

    def billed(self, side: str = "") -> Totals:
        """What all attempts sent to a server; of one side, or of all."""
        return billed(_calls(self.path, "? IN (side, '')", side))

    def to_dict(self) -> dict[str, Any]:
        """The totals of each side and of all, JSON-ready."""
        query = "SELECT side FROM calls WHERE session = ? GROUP BY side ORDER BY min(id)"
        sides = [side for (side,) in Reader(self.path).rows(query, self.attempt)]
        return {
            "attempts": self.attempt,
            "as_if": {side or "all": asdict(self.as_if(side)) for side in (*sides, "")},
            "billed": {side or "all": asdict(self.billed(side)) for side in (*sides, "")},
        }

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
