"""What a run writes to its database, `run.db`: records, calls under way, texts, replies, scores."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from ragbench.errors import RunError
from ragbench.experiments.store.card import DATABASE, RunCard, keep_card, show_card
from ragbench.experiments.store.database import Reader, Writer, digest_of
from ragbench.experiments.store.records import (
    ANSWERED,
    COLUMNS,
    CUT_OFF,
    FAILED,
    StoredRecords,
    read_stored,
)
from ragbench.logs import get
from ragbench.record import Call, Record, parse_call, was_sent
from ragbench.redact import redact

_log = get(__name__)

#: In place of a question's id: the calls that make what all questions share.
PREPARATION = ""

_INSERT_RECORD = (
    f"INSERT INTO records ({', '.join(COLUMNS)}, digest) "
    f"VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
)
_COUNT_RECORD = "INSERT INTO run VALUES ('records', 1) ON CONFLICT DO UPDATE SET value = value + 1"
#: A question's calls are in its record now. Late ones, of a thread that went on, stay.
_SETTLE_CALLS = (
    "DELETE FROM calls WHERE id IN "
    "(SELECT id FROM calls WHERE qid = ? AND session = ? ORDER BY id LIMIT ?)"
)
_INSERT_REPLY = "INSERT INTO replies (qid, pass, key, value, digest) VALUES (?, ?, ?, ?, ?)"
_PUT_SCORES = (
    "INSERT OR REPLACE INTO scores "
    "SELECT max(id), ?, ? FROM records WHERE qid = ? AND state != 'cut off'"
)
INSERT_CALL = "INSERT INTO calls (session, qid, side, value) VALUES (?, ?, ?, ?)"
_INSERT_PROMPT = "INSERT OR IGNORE INTO prompts VALUES (?, ?)"


class Store:
    """The database of the run in `folder`, to be written to; for a `with` block, thread-safe.

    It is made, with `card.json` beside it, by the first thing that is written. Each write is on
    disk before it returns. The caller holds the folder (`held` or `locked`).
    """

    def __init__(self, folder: Path, card: RunCard | None = None) -> None:
        self.folder, self._card = folder, card
        self._writer = Writer(folder / DATABASE)
        self._texts: set[str] = set()  # ids of those that are kept
        self._lock = threading.Lock()
        self.begun = False  # whether anything was written

    def __enter__(self) -> Self:
        self._texts = {name for (name,) in Reader(self._writer.path).rows("SELECT id FROM prompts")}
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write(self, record: Record) -> None:
        """Add `record`.

        Raises:
            RunError: it cannot be written; see `Writer.write`.
        """
        self._begin()
        values = _row_of(record)
        sent = sum(map(was_sent, record.ledger.calls))
        self._writer.write(
            (_INSERT_RECORD, (*values, digest_of(*values))),
            (_COUNT_RECORD, ()),
            (_SETTLE_CALLS, (record.qid, self._writer.session, sent)),
        )

    def put_card(self, card: RunCard) -> None:
        """Keep `card` in place of the one before; not before there is something else to keep.

        Raises:
            RunError: it cannot be written.
        """
        with self._lock:
            self._card = card
            if self.begun:
                self._show_card(card)

    def calls_of(self, qid: str) -> Callable[[Call], None]:
        """Files the calls of question `qid` as they end, until its record is written.

        A kill leaves them, so that what they took is counted as billed. Those of `PREPARATION`
        stay.
        """

        def file(call: Call) -> None:
            if was_sent(call):
                # A full disk stops the run when a record is written; a thread that is still under
                # way when the run was stopped has nothing to write to.
                with contextlib.suppress(RunError):
                    self.write_call(call, qid)

        return file

    def write_call(self, call: Call, qid: str, side: str = "") -> None:
        """Add one call.

        Raises:
            RunError: it cannot be written.
        """
        self._begin()
        self._writer.write(
            (INSERT_CALL, (self._writer.session, qid, side, dumped(call.to_dict()))),
            durable=False,
        )

    def keep(self, text: str) -> str:
        """Keep `text`, keys taken out, and give its id; one that is kept already is not again."""
        name, packed = pack(text)
        self.keep_packed(name, packed)
        return name

    def keep_packed(self, name: str, packed: bytes) -> None:
        """Keep what `pack` made of a text."""
        with self._lock:
            if name in self._texts:
                return
            self._texts.add(name)
        with contextlib.suppress(RunError):  # a full disk stops the run when a record is written
            self._begin()
            self._writer.write((_INSERT_PROMPT, (name, packed)), durable=False)

    def add_reply(self, row: Mapping[str, Any]) -> None:
        """Add what a judge said, or what became of a batch of questions to it.

        Raises:
            RunError: it cannot be written.
        """
        self._begin()
        value = dumped(row)
        names = (row.get("qid", ""), row.get("pass", ""), row.get("key", ""))
        self._writer.write((_INSERT_REPLY, (*names, value, digest_of(value))))

    def write_scores(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the scores of questions, by id, in place of those before; all or none.

        A row has `scores`, the names in it that a model `judged`, and what a model attributed.

        Raises:
            RunError: they cannot be written.
        """
        self._begin()
        values = {qid: dumped(row) for qid, row in rows.items()}
        self._writer.write(
            *((_PUT_SCORES, (value, digest_of(qid, value), qid)) for qid, value in values.items())
        )

    def _begin(self) -> None:
        with self._lock:
            if self.begun:
                return
            self._writer.open(*([keep_card(self._card)] if self._card else []))
            if self._card is not None:
                self._show_card(self._card)
            self.begun = True

    def _show_card(self, card: RunCard) -> None:
        self._writer.write(keep_card(card))
        show_card(self.folder, card)


def dumped(value: object) -> str:
    """`value` as JSON."""
    # A lone surrogate (a model can write one) has no UTF-8; "?" takes its place.
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


def pack(text: str) -> tuple[str, bytes]:
    """The id of `text`, keys taken out, and the text compressed."""
    content = redact(text).encode("utf-8", "replace")
    return hashlib.sha256(content).hexdigest()[:24], zlib.compress(content)


def _row_of(record: Record) -> tuple[Any, ...]:
    """The values of the columns of a record's row."""
    failure, spent = record.failure, record.ledger.as_if
    state = CUT_OFF if record.cut_off else FAILED if failure else ANSWERED
    row: dict[str, Any] = {
        "qid": record.qid,
        "state": state,
        "question": record.question,
        "answer": record.answer,
        "em": _number(record.scores.get("em")),
        "f1": _number(record.scores.get("f1")),
        "stop_reason": record.stop_reason,
        "error": failure.name if failure else None,
        "calls": spent.calls,
        "tokens": spent.tokens,
        "cost_usd": _number(spent.cost_usd),
        "latency_s": float(record.latency_s),
        "value": dumped(record.to_dict()),
    }
    return tuple(_text(row[name]) for name in COLUMNS)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _text(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def read_records(folder: Path) -> StoredRecords:
    """The records of the run in `folder`; none where it is no run.

    Raises:
        RunError: they cannot be read.
    """
    return read_stored(folder / DATABASE)


def read_texts(folder: Path, records: Iterable[Record]) -> dict[str, str]:
    """The prompts and replies that the run in `folder` kept of the calls of `records`, by id.

    Raises:
        RunError: they cannot be read.
    """
    calls = (call for record in records for call in record.ledger.calls)
    wanted = {name for call in calls for name in (*call.prompt, call.reply)} - {""}
    reader, texts = Reader(folder / DATABASE), {}
    for name in wanted:
        for (packed,) in reader.rows("SELECT text FROM prompts WHERE id = ?", (name,)):
            texts[name] = zlib.decompress(packed).decode("utf-8", "replace")
    return texts


def read_replies(folder: Path) -> list[dict[str, Any]]:
    """What judges said of the run in `folder`, oldest first.

    A reply that was damaged or changed is left out, so that it is asked for again.

    Raises:
        RunError: they cannot be read; or a row of a batch was changed, whose replies may be paid.
    """
    path, rows, left_out = folder / DATABASE, [], 0
    query = "SELECT value, digest, pass FROM replies ORDER BY id"
    for value, digest, name in Reader(path).each(query):
        if digest == digest_of(value):
            rows.append(json.loads(value))
        elif name:
            left_out += 1
        else:
            raise RunError(
                f"{path}: what was kept of a batch was damaged or changed, and its replies may be "
                "paid; put the file back"
            )
    if left_out:
        _log.warning("%s: %d replies of a judge were damaged and are left out", path, left_out)
    return rows


def read_scores(folder: Path) -> dict[str, dict[str, float | None]]:
    """The scores that the answers of the run in `folder` were given, by question.

    Raises:
        RunError: they cannot be read.
    """
    query = (
        "SELECT qid, scores.value, scores.digest FROM answers "
        "JOIN scores ON scores.record = answers.id"
    )
    return {
        qid: json.loads(value)["scores"]
        for qid, value, digest in Reader(folder / DATABASE).each(query)
        if digest == digest_of(qid, value)
    }


def lost_calls(folder: Path) -> list[Call]:
    """Calls of questions in `folder` that are in no record: the run was killed, or goes on.

    Raises:
        RunError: they cannot be read.
    """
    return list(_calls(folder / DATABASE, "qid != ''"))


def preparation_calls(folder: Path) -> list[Call]:
    """Calls that made what all questions of the run in `folder` share, finished or not.

    Raises:
        RunError: they cannot be read.
    """
    return list(_calls(folder / DATABASE, "qid = ''"))


def billed_calls(path: Path) -> Iterator[Call]:
    """The calls to servers that the database at `path` knows of, a run's or a compile's.

    Those of questions that were asked again, or left no record, are among them.

    Raises:
        RunError: they cannot be read.
    """
    for (value,) in Reader(path).each("SELECT value FROM records"):
        for call in json.loads(value)["ledger"]["calls"]:
            if was_sent(parsed := parse_call(call)):
                yield parsed
    yield from filter(was_sent, _calls(path, "1"))


def _calls(path: Path, which: str) -> Iterator[Call]:
    for (value,) in Reader(path).each(f"SELECT value FROM calls WHERE {which} ORDER BY id"):
        yield parse_call(json.loads(value))
