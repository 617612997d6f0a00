"""What a run writes to its database, `run.db`, and what is read of it beside the records.

Whatever reads or writes it raises RunError where that cannot be done.
"""

import contextlib
import hashlib
import json
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ragbench.errors import RunError
from ragbench.experiments.store.card import CARD, DATABASE, RunCard, read_card
from ragbench.experiments.store.database import SET, Reader, Writer, check_format, digest_of
from ragbench.experiments.store.files import write_json
from ragbench.experiments.store.records import ANSWERED, COLUMNS, CUT_OFF, FAILED, price_of
from ragbench.logs import get
from ragbench.record import Call, Record, parse_call, was_sent
from ragbench.redact import redact

_log = get(__name__)

#: In place of a question's id: the calls that make what all questions share.
PREPARATION = ""

_ROW = ", ".join((*COLUMNS, "digest"))
_INSERT_RECORD = f"INSERT INTO records ({_ROW}) VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
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
        self._writer = Writer(folder / DATABASE, _setting(card) if card else None)
        self._texts: set[str] = set()  # ids of those that are kept
        self._lock = threading.Lock()
        self._begun = False

    def __enter__(self) -> Self:
        self._texts = {name for (name,) in Reader(self._writer.path).rows("SELECT id FROM prompts")}
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.__exit__()

    def write(self, record: Record) -> None:
        """Add `record`."""
        self._begin()
        values = _row_of(record)
        sent = sum(map(was_sent, record.ledger.calls))
        self._writer.write(
            (_INSERT_RECORD, (*values, digest_of(*values))),
            (_COUNT_RECORD, ()),
            (_SETTLE_CALLS, (record.qid, self._writer.session, sent)),
        )

    def put_card(self, card: RunCard) -> None:
        """Keep `card` in place of the one before; not before there is something else to keep."""
        with self._lock:
            self._card, self._writer.settings = card, _setting(card)
            if self._begun:
                self._writer.write(*((SET, item) for item in _setting(card).items()))
                _show(self.folder, card)

    def calls_of(self, qid: str) -> Callable[[Call], None]:
        """Files the calls of question `qid` as they end, until its record is written.

        A kill leaves them, so that what they took is counted as billed. Those of `PREPARATION`
        stay.
        """

        def file(call: Call) -> None:
            if not was_sent(call):
                return
            # A full disk stops the run when a record is written; a thread that is still under way
            # when the run was stopped has nothing to write to.
            with contextlib.suppress(RunError):
                self._begin()
                values = (self._writer.session, qid, "", dumped(call.to_dict()))
                self._writer.write((INSERT_CALL, values), durable=False)

        return file

    def keep(self, text: str) -> str:
        """Keep `text`, keys taken out, and give its id; one that is kept already is not again."""
        content = redact(text).encode("utf-8", "replace")
        name = hashlib.sha256(content).hexdigest()[:24]
        with self._lock:
            known = name in self._texts
            self._texts.add(name)
        if not known:
            with contextlib.suppress(RunError):  # a full disk stops the run, as for calls
                self._begin()
                self._writer.write((_INSERT_PROMPT, (name, zlib.compress(content))), durable=False)
        return name

    def add_reply(self, row: Mapping[str, Any]) -> None:
        """Add what a judge said, or what became of a batch of questions to it."""
        self._begin()
        value = dumped(row)
        names = (row.get("qid", ""), row.get("pass", ""), row.get("key", ""))
        self._writer.write((_INSERT_REPLY, (*names, value, digest_of(value))))

    def write_scores(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the scores of questions, by id, in place of those before; all or none.

        A row has `scores`, the names in it that a model `judged`, and what a model attributed.
        """
        self._begin()
        values = {qid: dumped(row) for qid, row in rows.items()}
        self._writer.write(
            *((_PUT_SCORES, (value, digest_of(qid, value), qid)) for qid, value in values.items())
        )

    def _begin(self) -> None:
        with self._lock:
            if not self._begun:
                self._writer.write()
                if self._card is not None:
                    _show(self.folder, self._card)
                self._begun = True


def _setting(card: RunCard) -> dict[str, str]:
    return {"card": card.model_dump_json()}


def replace_card(folder: Path, card: RunCard) -> None:
    """Put `card` in place of the one of the run in `folder`, or make that run."""
    with Writer(folder / DATABASE, _setting(card)) as writer:
        writer.write()
    _show(folder, card)


def _show(folder: Path, card: RunCard) -> None:
    write_json(folder / CARD, card.model_dump(mode="json"))


def dumped(value: object) -> str:
    """`value` as JSON."""
    # A lone surrogate (a model can write one) has no UTF-8; "?" takes its place.
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


def _row_of(record: Record) -> tuple[Any, ...]:
    """The values of the columns of a record's row."""
    failure, spent = record.failure, record.ledger.as_if
    row: dict[str, Any] = {
        "qid": record.qid,
        "state": CUT_OFF if record.cut_off else FAILED if failure else ANSWERED,
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


def read_texts(folder: Path, records: Iterable[Record]) -> dict[str, str]:
    """The prompts and replies that the run in `folder` kept of the calls of `records`, by id."""
    calls = (call for record in records for call in record.ledger.calls)
    wanted = {name for call in calls for name in (*call.prompt, call.reply)} - {""}
    reader, texts = Reader(folder / DATABASE), {}
    for name in wanted:
        for (packed,) in reader.rows("SELECT text FROM prompts WHERE id = ?", name):
            texts[name] = zlib.decompress(packed).decode("utf-8", "replace")
    return texts


def read_replies(folder: Path) -> list[dict[str, Any]]:
    """What judges said of the run in `folder`, oldest first.

    A reply that was damaged or changed is left out, so that it is asked for again; a row of a
    batch that was raises RunError, for its replies may be paid.
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
    """The scores that the answers of the run in `folder` were given, by question."""
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
    """Calls of questions in `folder` that are in no record: the run was killed, or goes on."""
    return list(_calls(folder / DATABASE, "qid != ''"))


def preparation_calls(folder: Path) -> list[Call]:
    """Calls that made what all questions of the run in `folder` share, finished or not."""
    return list(_calls(folder / DATABASE, "qid = ''"))


def billed_calls(path: Path) -> Iterator[Call]:
    """The calls to servers that the database at `path` knows of, a run's or a compile's.

    Those of questions that were asked again, or left no record, are among them.
    """
    priced = price_of(path.parent)
    for (value,) in Reader(path).each("SELECT value FROM records"):
        calls = map(parse_call, json.loads(value)["ledger"]["calls"])
        yield from map(priced, filter(was_sent, calls))
    yield from filter(was_sent, _calls(path, "1"))


def _calls(path: Path, which: str) -> Iterator[Call]:
    priced = price_of(path.parent)
    for (value,) in Reader(path).each(f"SELECT value FROM calls WHERE {which} ORDER BY id"):
        yield priced(parse_call(json.loads(value)))


#: What is taken from a shard, with new ids, in the order of the shards.
_COPIES = (
    f"INSERT INTO records SELECT NULL, {_ROW} FROM shard.records ORDER BY id",
    "INSERT INTO calls SELECT NULL, session, qid, side, value FROM shard.calls ORDER BY id",
    "INSERT OR IGNORE INTO prompts SELECT * FROM shard.prompts",
    "INSERT INTO replies SELECT NULL, qid, pass, key, value, digest FROM shard.replies ORDER BY id",
    "INSERT INTO main.run SELECT 'records', count(*) FROM shard.records WHERE true "
    "ON CONFLICT DO UPDATE SET value = value + excluded.value",
    "UPDATE main.run SET value = max(value + 0, (SELECT coalesce(max(session), 0) FROM main.calls))"
    " WHERE name = 'session'",
)


def merge_databases(shards: Sequence[Path], out: Path, card: RunCard) -> None:
    """Add the rows of `shards` to the database of the run in `out`, or make it; each as a whole.

    Scores of shards are left out: they are made of a whole run. A shard that was added before is
    not added again.
    """
    replace_card(out, card)
    try:
        with contextlib.closing(sqlite3.connect(out / DATABASE, isolation_level=None)) as db:
            for folder in shards:
                _add(db, folder)
    except sqlite3.Error as error:
        raise RunError(f"cannot merge into {out}: {error}") from None


def _add(db: sqlite3.Connection, folder: Path) -> None:
    path = folder / DATABASE
    with contextlib.closing(sqlite3.connect(path)) as shard:
        check_format(shard, path)
    name = f"shard {read_card(folder).run}"
    if db.execute("SELECT 1 FROM run WHERE name = ?", (name,)).fetchone():
        return
    db.execute("ATTACH ? AS shard", (str(path),))
    db.execute("BEGIN IMMEDIATE")
    for statement in _COPIES:
        db.execute(statement)
    db.execute(SET, (name, folder.name))
    db.execute("COMMIT")
    db.execute("DETACH shard")
