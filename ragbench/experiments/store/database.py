"""Writer of the SQLite file of a run or a compile.

A write is committed before it returns. Threads that write at the same time share a commit. With
SQLite's write-ahead log (WAL), other processes can read in the meantime. The log is removed when
the writer closes the file. On a file system without shared memory, SQLite uses its rollback
journal. Read and write errors raise RunError.
"""

import contextlib
import json
import math
import os
import queue
import secrets
import sqlite3
import threading
import time
import zlib
from collections import Counter
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
)
from ragbench.paths import make_folder, sync
from ragbench.record import Call, Record, parse_record, was_sent
from ragbench.redact import digest_of, redact

#: Number of times that the database was opened for writing, including this one.
_SESSION = "(SELECT value FROM run WHERE name = 'session')"
_NEXT_SESSION = f"INSERT OR REPLACE INTO run SELECT 'session', 1 + ifnull({_SESSION}, 0)"
_INSERT_RECORD = (
    f"INSERT INTO records ({', '.join(COLUMNS)}, digest) VALUES ({'?, ' * len(COLUMNS)}?)"
)
_COUNT_RECORD = "INSERT INTO run VALUES ('records', 1) ON CONFLICT DO UPDATE SET value = value + 1"
#: Deletes the calls of a question that are now in its record. Late calls of a thread stay.
_SETTLE_CALLS = (
    "DELETE FROM calls WHERE id IN "
    f"(SELECT id FROM calls WHERE qid = ? AND session = {_SESSION} ORDER BY id LIMIT ?)"
)
_ADD_CALL = f"INSERT INTO calls (session, qid, side, value) VALUES ({_SESSION}, ?, ?, ?)"
_ADD_REPLY = "INSERT INTO replies (qid, pass, key, value, digest) VALUES (?, ?, ?, ?, ?)"
_ADD_TEXT = "INSERT OR IGNORE INTO prompts VALUES (?, ?)"
_SET = "INSERT OR REPLACE INTO run VALUES (?, ?)"
#: Latest record of a question. Ignores records that a limit interrupted.
_ANSWER = "FROM records WHERE qid = ? AND state != 'cut off' ORDER BY id DESC LIMIT 1"
_PUT_SCORES = f"INSERT OR REPLACE INTO scores SELECT id, ?, ? {_ANSWER}"
_PUT_FACTS = "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_FACTS_OF_ANSWER = f"INSERT OR REPLACE INTO facts SELECT id, {'?, ' * 6}? {_ANSWER}"
#: Adds the facts of the latest record of a question.
_ADD_FACTS = f"INSERT OR REPLACE INTO facts SELECT max(id), {'?, ' * 6}? FROM records WHERE qid = ?"
_LOST = "SELECT id, value FROM records WHERE id NOT IN (SELECT record FROM facts)"
#: Records whose facts are written together.
_MOST_WAITING = 100
#: Maximum number of ids of saved texts in memory.
_MOST_KEPT = 20_000
#: Time in seconds until a filed call is saved, if its question's record is not written before.
_SAVE_S = 0.05
#: Least time in seconds between two records that wait for the disk.
_SYNC_S = 1.0
#: A statement and the values of its parameters.
Statement = tuple[str, Sequence[object]]


class Store:
    """Writer of the database `name` in `folder`. Thread-safe; use it in a `with` block.

    The first write creates the database, and `card.json` if there is a card. The caller holds the
    folder (`locked`). If another process takes over the database anyway, the next write fails.
    """

    def __init__(self, folder: Path, card: BaseModel | None = None, name: str = DATABASE) -> None:
        self.folder = folder
        self.path = folder / name
        self.card = card
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._writing = threading.Lock()
        self._waiting = queue.SimpleQueue[tuple[Sequence[Statement], bool, Future[None]]]()
        self._token = secrets.token_hex(8)
        self._inode = 0
        self._durable: bool | None = None  # State of the connection.
        self._synced = -math.inf  # When a record last waited for the disk
        #: Texts that the next commit saves, and ids of texts that are already saved.
        self._texts: list[Statement] = []
        self._kept: set[str] = set()
        self._filing = threading.Lock()
        #: Records without facts, by question.
        self._without_facts: dict[str, Record] = {}
        #: Calls to save, and the number of saved calls without a record, by question.
        self._unsaved: dict[str, list[Call]] = {}
        self._saved: Counter[str] = Counter()
        self._saver: threading.Thread | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._save_calls()
        with contextlib.suppress(RunError, ValueError, sqlite3.Error):  # Readers compute them.
            self._add_facts()
            self._add_lost_facts()
        with self._writing:
            # Texts and calls of questions without a record, such as after a full disk.
            if self._texts or not self._waiting.empty():
                self._commit_waiting()
            self._closed = True
            if self._db is not None:
                with contextlib.suppress(sqlite3.Error):  # A reader is active or the disk is full.
                    self._db.execute("PRAGMA busy_timeout=1000")
                    self._db.execute("PRAGMA journal_mode=DELETE")
                self._db.close()
                self._db = None

    def run(self, *statements: Statement, durable: bool = True) -> None:
        """Run the statements in one transaction and commit it.

        Args:
            statements: SQL statements with the values of their parameters.
            durable: Survive a power failure. Otherwise, the commit survives only the end of the
                process.

        Raises:
            RunError: The disk is full, or the file was removed or taken over by another process.
        """
        self._wait(self._submit(statements, durable=durable))

    def _submit(self, statements: Sequence[Statement], *, durable: bool) -> Future[None]:
        done: Future[None] = Future()
        self._waiting.put((statements, durable, done))
        return done

    def _wait(self, done: Future[None]) -> None:
        with self._writing:
            if not done.done():  # another thread may have committed it with its own
                self._commit_waiting()
        done.result()

    def _commit_waiting(self) -> None:
        """Commit the statements of all threads in one transaction."""
        group: list[Statement] = []
        outcomes = []
        is_durable = False
        for _ in range(self._waiting.qsize()):
            statements, durable, done = self._waiting.get()
            group += statements
            outcomes.append(done)
            is_durable = is_durable or durable
        texts = [*self._texts]
        error = self._commit([*texts, *group], durable=is_durable)
        if error is None:
            del self._texts[: len(texts)]
        for done in outcomes:
            if error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _commit(self, statements: Sequence[Statement], *, durable: bool) -> BaseException | None:
        """Commit all `statements` or none; return the error that prevented it, or None."""
        try:
            db = self._db or self._open()
            if durable != self._durable:
                db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            with db:
                db.execute("BEGIN IMMEDIATE")
                if not self.path.exists() or self.path.stat().st_ino != self._inode:
                    raise RunError(f"{self.path} was removed or replaced during a write")
                writer = db.execute("SELECT value FROM run WHERE name = 'writer'").fetchone()
                if writer != (self._token,):
                    raise RunError(f"{self.path} was taken over by another process")
                for statement, values in statements:
                    db.execute(statement, values)
        except (sqlite3.Error, OSError) as error:
            return RunError(f"cannot write {self.path}: {error}")
        except BaseException as error:
            return error
        return None

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise RunError(f"{self.path} is closed: the run was stopped")
        if self.path.is_symlink():
            raise RunError(f"{self.path} is a symbolic link. Remove it.")
        check_files(self.path)
        card = []
        if self.card:
            card.append(("card", self.card.model_dump_json()))
        if not self.path.exists():
            _make(self.path, card)
        db = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            check_format(db, self.path)
            with contextlib.suppress(
                sqlite3.OperationalError
            ):  # The file system has no shared memory.
                db.execute("PRAGMA journal_mode=WAL")
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.execute(_NEXT_SESSION)
                db.executemany(_SET, [("writer", self._token), *card])
            self._inode = self.path.stat().st_ino
            if self.card:
                write_json(self.folder / CARD, self.card.model_dump(mode="json"))
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def put_card(self, card: BaseModel) -> None:
        """Replace the card. Nothing is written before the database exists."""
        with self._writing:  # Another thread may be creating the database with the old card.
            self.card = card
            exists = self._db is not None
        if exists:
            self.run((_SET, ("card", card.model_dump_json())))
            write_json(self.folder / CARD, card.model_dump(mode="json"))

    def write(self, record: Record) -> None:
        """Add `record` and remove the saved calls that it now contains.

        A kill cannot lose it. Records wait for the disk at most once a second, so a power failure
        can lose those in between. The facts of many records are written together, at the latest
        when the file is closed.
        """
        values = _row_of(record)
        statements: list[Statement] = [
            (_INSERT_RECORD, (*values, digest_of(*values))),
            (_COUNT_RECORD, ()),
        ]
        contained = sum(map(was_sent, record.ledger.calls))
        with self._filing:
            unsaved = self._unsaved.pop(record.qid, [])
            saved = self._saved.pop(record.qid, 0)
            if saved:
                statements.append((_SETTLE_CALLS, (record.qid, contained)))
            for call in unsaved[max(0, contained - saved) :]:  # They ended after the record.
                statements.append(_call_row(call, record.qid))
            now = time.monotonic()
            is_durable = now - self._synced >= _SYNC_S
            if is_durable:
                self._synced = now
            done = self._submit(statements, durable=is_durable)
        self._wait(done)
        with self._filing:
            self._without_facts[record.qid] = record
            is_full = len(self._without_facts) >= _MOST_WAITING
        if is_full:
            self._add_facts()

    def _add_facts(self) -> None:
        """Write the facts of the records that have none yet."""
        with self._filing:
            waiting = list(self._without_facts.values())
            self._without_facts.clear()
        if waiting:
            rows = ((*row_of_facts(record, self._price), record.qid) for record in waiting)
            self.run(*((_ADD_FACTS, row) for row in rows), durable=False)

    def _add_lost_facts(self) -> None:
        """Write the facts of records that a killed process wrote without them."""
        with self._writing:
            rows = self._db.execute(_LOST).fetchall() if self._db else []
        if rows:
            self.write_facts((row, parse_record(value)) for row, value in rows)

    def add_call(self, call: Call, side: str) -> None:
        """Add a call of a compile that is in no record.

        Args:
            call: The call.
            side: Side of the compile, such as "student".
        """
        self.run(_call_row(call, PREPARATION, side), durable=False)

    def file_call(self, qid: str, call: Call) -> None:
        """Save a call of a question until the record of the question is written.

        A kill loses calls of the last 50 ms. The others count as billed. Calls of `PREPARATION`
        always stay.

        Args:
            qid: Id of the question.
            call: The call.
        """
        if not was_sent(call):
            return
        with self._filing:
            self._unsaved.setdefault(qid, []).append(call)
            is_first = self._saver is None
            if is_first:
                self._saver = threading.Thread(target=self._save_regularly, daemon=True)
        if is_first and self._saver is not None:
            self._saver.start()

    def _save_regularly(self) -> None:
        while not self._ended.wait(_SAVE_S):
            self._save_calls()

    def _save_calls(self) -> None:
        with self._filing:
            statements = []
            for qid, calls in self._unsaved.items():
                self._saved[qid] += len(calls)
                for call in calls:
                    statements.append(_call_row(call, qid))
            self._unsaved.clear()
            done = self._submit(statements, durable=False) if statements else None
        # A full disk stops the run at its next record. A thread that outlives a stopped run
        # cannot write any more.
        with contextlib.suppress(RunError):
            if done is not None:
                self._wait(done)

    def keep(self, text: str) -> str:
        """Return the id of `text` without keys. The next commit saves the text.

        If the process is killed, texts of a question without a record may be lost.
        """
        content = redact(text).encode("utf-8", "replace")
        name = digest_of(content)
        if name not in self._kept:
            if len(self._kept) > _MOST_KEPT:
                self._kept.clear()  # INSERT OR IGNORE keeps texts that are saved again.
            self._texts.append((_ADD_TEXT, (name, zlib.compress(content))))
            self._kept.add(name)  # Last, because a record of another thread may need it.
        return name

    def add_reply(self, row: Mapping[str, Any]) -> None:
        """Add a reply of a judge, or an event of a batch."""
        value = dumped(row)
        columns = (row.get("qid", ""), row.get("pass", ""), row.get("key", ""))
        self.run((_ADD_REPLY, (*columns, value, digest_of(value))))

    def write_scores(
        self, rows: Mapping[str, Mapping[str, Any]], records: Iterable[Record]
    ) -> None:
        """Replace the scores and the facts of questions in one transaction.

        Args:
            rows: Scores by question, the names of those that a model `judged`, and attributed
                facts.
            records: Records of these questions with their scores.
        """
        self._add_facts()
        statements: list[Statement] = []
        for record in records:
            qid = record.qid
            row = rows[qid]
            value = dumped(row)
            statements.append((_PUT_SCORES, (value, digest_of(qid, value), qid)))
            if row["judged"]:
                facts = row_of_facts(record, self._price)
                statements.append((_PUT_FACTS_OF_ANSWER, (*facts, qid)))
        self.run(*statements)

    def write_facts(self, records: Iterable[tuple[int, Record]]) -> None:
        """Recompute the facts of `records` at the card's price."""
        self._add_facts()
        rows = [(row, *row_of_facts(record, self._price)) for row, record in records]
        self.run(*((_PUT_FACTS, row) for row in rows))

    def _price(self, call: Call) -> Call:
        if isinstance(self.card, RunCard) and self.card.price:
            return self.card.priced(call)
        return call


def _call_row(call: Call, qid: str, side: str = "") -> Statement:
    return _ADD_CALL, (qid, side, dumped(call.to_dict()))


def _row_of(record: Record) -> list[object]:
    """Return the values of `COLUMNS`, as SQLite returns them."""
    spent = record.ledger.as_if
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
        record.to_json(),
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
    """Create the database in one step."""
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
    """Return `value` as JSON, with a lone surrogate replaced by "?"."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()
