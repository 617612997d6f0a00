"""The SQLite file of a run or a compile: how it is written.

A write is committed before it returns; threads that write at once share a commit. SQLite's log of
writes (WAL) lets others read meanwhile, and is gone when the writer closes the file; where a file
system has no shared memory for it, SQLite's rollback journal serves. Whatever cannot be read or
written raises RunError.
"""

import contextlib
import json
import os
import queue
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from ragbench.errors import RunError
from ragbench.experiments.store.card import RunCard
from ragbench.experiments.store.facts import row_of_facts
from ragbench.experiments.store.files import write_json
from ragbench.experiments.store.reader import check_files
from ragbench.experiments.store.schema import (
    ANSWERED,
    CARD,
    COLUMNS,
    CUT_OFF,
    DATABASE,
    FAILED,
    PREPARATION,
    SCHEMA,
    check_format,
    digest_of,
)
from ragbench.metrics.efficiency import as_if
from ragbench.paths import make_folder, sync
from ragbench.record import Call, Record, was_sent
from ragbench.redact import redact

#: How often the database was opened for writing, this time included.
_SESSION = "(SELECT value FROM run WHERE name = 'session')"
_NEXT_SESSION = f"INSERT OR REPLACE INTO run SELECT 'session', 1 + ifnull({_SESSION}, 0)"
_INSERT_RECORD = (
    f"INSERT INTO records ({', '.join(COLUMNS)}, digest) VALUES ({'?, ' * len(COLUMNS)}?)"
)
_COUNT_RECORD = "INSERT INTO run VALUES ('records', 1) ON CONFLICT DO UPDATE SET value = value + 1"
#: A question's calls are in its record now. Late ones, of a thread that went on, stay.
_SETTLE_CALLS = (
    "DELETE FROM calls WHERE id IN "
    f"(SELECT id FROM calls WHERE qid = ? AND session = {_SESSION} ORDER BY id LIMIT ?)"
)
_ADD_CALL = f"INSERT INTO calls (session, qid, side, value) VALUES ({_SESSION}, ?, ?, ?)"
_ADD_REPLY = "INSERT INTO replies (qid, pass, key, value, digest) VALUES (?, ?, ?, ?, ?)"
_ADD_TEXT = "INSERT OR IGNORE INTO prompts VALUES (?, ?)"
_SET = "INSERT OR REPLACE INTO run VALUES (?, ?)"
#: The last record of a question, which is no record that a limit cut off; none where there is none.
_ANSWER = "FROM records WHERE qid = ? AND state != 'cut off' ORDER BY id DESC LIMIT 1"
_PUT_SCORES = f"INSERT OR REPLACE INTO scores SELECT id, ?, ? {_ANSWER}"
_PUT_FACTS = "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
#: The facts of the record that was inserted last.
_ADD_FACTS = "INSERT INTO facts SELECT max(id), ?, ?, ?, ?, ?, ?, ? FROM records"
#: Ids of kept texts that a writer remembers.
_MOST_KEPT = 20_000
#: A statement and the values of its parameters.
_Statement = tuple[str, Sequence[object]]


def text_id(text: str) -> str:
    """The id of `text` in the table of prompts."""
    return digest_of(redact(text).encode("utf-8", "replace"))


class Store:
    """The database `name` in `folder`, to be written to; for a `with` block, thread-safe.

    It is made, with `card.json` beside it where there is a card, by the first thing that is
    written. The caller holds the folder (`locked`); a process that took the database over all the
    same ends this writer at its next write.
    """

    def __init__(self, folder: Path, card: BaseModel | None = None, name: str = DATABASE) -> None:
        self.folder = folder
        self.path = folder / name
        self._card = card
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._writing = threading.Lock()
        self._waiting = queue.SimpleQueue[tuple[Sequence[_Statement], bool, Future[None]]]()
        self._token = secrets.token_hex(8)
        self._inode = 0
        self._durable: bool | None = None  # as the connection is set
        #: Texts that the next commit keeps, and the ids of some that are kept already.
        self._texts: list[_Statement] = []
        self._kept: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._writing:
            if self._texts:  # of questions without a record; a full disk has stopped the run
                self._commit((), durable=False)
            self._closed = True
            if self._db is not None:
                with contextlib.suppress(sqlite3.Error):  # somebody reads it, or the disk is full
                    self._db.execute("PRAGMA busy_timeout=1000")
                    self._db.execute("PRAGMA journal_mode=DELETE")
                self._db.close()
                self._db = None

    def run(self, *statements: _Statement, durable: bool = True) -> None:
        """Run the statements, all or none; they are committed when this returns.

        What is not `durable` outlives the process, but not a loss of power. A full disk, a file
        that was removed or one that another process took over raises RunError.
        """
        done: Future[None] = Future()
        self._waiting.put((statements, durable, done))
        with self._writing:
            if not done.done():  # another thread may have committed it with its own
                waiting = [self._waiting.get() for _ in range(self._waiting.qsize())]
                group: list[_Statement] = []
                is_durable = False
                for waiting_statements, waiting_durable, _ in waiting:
                    group += waiting_statements
                    is_durable = is_durable or waiting_durable
                error = self._commit(group, durable=is_durable)
                for *_, outcome in waiting:
                    if error:
                        outcome.set_exception(error)
                    else:
                        outcome.set_result(None)
        done.result()

    def _commit(self, statements: Sequence[_Statement], *, durable: bool) -> BaseException | None:
        """Commit all `statements`, or none; gives what kept them from it, such as Ctrl-C."""
        try:
            db = self._db or self._open()
            if durable != self._durable:
                db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            texts = [*self._texts]
            with db:
                db.execute("BEGIN IMMEDIATE")
                if not self.path.exists() or self.path.stat().st_ino != self._inode:
                    raise RunError(f"{self.path} was removed or replaced while it was written")
                writer = db.execute("SELECT value FROM run WHERE name = 'writer'").fetchone()
                if writer != (self._token,):
                    raise RunError(f"{self.path} was taken over by another process")
                for statement, values in (*texts, *statements):
                    db.execute(statement, values)
            del self._texts[: len(texts)]
        except (sqlite3.Error, OSError) as error:
            return RunError(f"cannot write {self.path}: {error}")
        except BaseException as error:
            return error
        return None

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise RunError(f"{self.path} is closed: the run was stopped")
        if self.path.is_symlink():
            raise RunError(f"{self.path} is a link; remove it")
        check_files(self.path)
        card = []
        if self._card:
            card.append(("card", self._card.model_dump_json()))
        if not self.path.exists():
            _make(self.path, card)
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            check_format(db, self.path)
            with contextlib.suppress(sqlite3.OperationalError):  # no shared memory here
                db.execute("PRAGMA journal_mode=WAL")
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.execute(_NEXT_SESSION)
                db.executemany(_SET, [("writer", self._token), *card])
            self._inode = self.path.stat().st_ino
            if self._card:
                write_json(self.folder / CARD, self._card.model_dump(mode="json"))
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def put_card(self, card: BaseModel) -> None:
        """Keep `card` in place of the one before; not before there is something else to keep."""
        self._card = card
        if self._db is not None:
            self.run((_SET, ("card", card.model_dump_json())))
            write_json(self.folder / CARD, card.model_dump(mode="json"))

    def write(self, record: Record) -> None:
        """Add `record`; the calls that were filed of its question are in it now."""
        values = _row_of(record)
        facts = row_of_facts(record, self._price)
        self.run(
            (_INSERT_RECORD, (*values, digest_of(*values))),
            (_ADD_FACTS, facts),
            (_COUNT_RECORD, ()),
            (_SETTLE_CALLS, (record.qid, sum(map(was_sent, record.ledger.calls)))),
        )

    def add_call(self, call: Call, qid: str = PREPARATION, side: str = "") -> None:
        """Add a call that is in no record, or not yet."""
        self.run((_ADD_CALL, (qid, side, dumped(call.to_dict()))), durable=False)

    def file_call(self, qid: str, call: Call) -> None:
        """Keep a call of question `qid` that was sent until the question's record is written.

        A kill leaves it, so that what it took is counted as billed. Those of `PREPARATION` stay.
        """
        # A full disk stops the run when a record is written; a thread that is still under way
        # when the run was stopped has nothing to write to.
        with contextlib.suppress(RunError):
            if was_sent(call):
                self.add_call(call, qid)

    def keep(self, text: str) -> str:
        """Give the id of `text`, keys taken out, which is kept with whatever is written next.

        A kill may lose those of a question that has no record yet.
        """
        content = redact(text).encode("utf-8", "replace")
        name = digest_of(content)
        if name not in self._kept:
            if len(self._kept) > _MOST_KEPT:
                self._kept.clear()  # what is added again is left as it is
            self._texts.append((_ADD_TEXT, (name, zlib.compress(content))))
            self._kept.add(name)  # after it: another thread's record may need the text next
        return name

    def add_reply(self, row: Mapping[str, Any]) -> None:
        """Add what a judge said, or what became of a batch of questions to it."""
        value = dumped(row)
        columns = (row.get("qid", ""), row.get("pass", ""), row.get("key", ""))
        self.run((_ADD_REPLY, (*columns, value, digest_of(value))))

    def write_scores(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the scores of questions, by id, in place of those before; all or none.

        A row has `scores`, the names in it that a model `judged`, and what a model attributed.
        """
        statements: list[_Statement] = []
        for qid, row in rows.items():
            value = dumped(row)
            statements.append((_PUT_SCORES, (value, digest_of(qid, value), qid)))
        self.run(*statements)

    def write_facts(self, records: Iterable[tuple[int, Record]]) -> None:
        """Replace the facts of `records`, each with its row, by those at the card's price."""
        rows = [(row, *row_of_facts(record, self._price)) for row, record in records]
        self.run(*((_PUT_FACTS, row) for row in rows))

    def _price(self, call: Call) -> Call:
        if isinstance(self._card, RunCard) and self._card.price:
            return self._card.priced(call)
        return call


def _row_of(record: Record) -> list[object]:
    """The values of `COLUMNS`, as SQLite gives them back."""
    spent = as_if(record)
    failure = record.failure
    state = ANSWERED
    if failure:
        state = CUT_OFF if record.cut_off else FAILED
    row = (
        record.qid,
        state,
        record.question,
        record.answer,
        _real(record.scores.get("em")),
        _real(record.scores.get("f1")),
        record.stop_reason,
        failure.name if failure else None,
        record.known("calls", spent.calls),
        record.known("tokens", spent.tokens),
        _real(record.known("cost_usd", spent.cost_usd)),
        _real(record.known("latency_s", record.latency_s)),
        dumped(record.to_dict()),
    )
    values = list[object]()
    for value in row:
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        values.append(value)
    return values


def _real(value: float | None) -> float | None:
    if value is None:
        return None
    return float(value)


def _make(path: Path, settings: Sequence[tuple[str, str]]) -> None:
    """Make the database: whole, or not at all."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(temporary)) as db, db:
            db.executescript(SCHEMA)
            db.executemany(_SET, settings)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def dumped(value: object) -> str:
    """`value` as JSON; a lone surrogate, which has no UTF-8, as "?"."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()
