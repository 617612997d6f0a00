"""Puts the databases of shards together."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.store.card import DATABASE, RunCard, keep_card, read_card, show_card
from ragbench.experiments.store.database import SET, Writer, check_format
from ragbench.experiments.store.records import COLUMNS

_ROW = ", ".join((*COLUMNS, "digest"))
#: What is taken from a shard; rows get new ids, in the order of the shards.
_COPIES = (
    f"INSERT INTO records SELECT NULL, {_ROW} FROM shard.records ORDER BY id",
    "INSERT INTO calls SELECT NULL, session, qid, side, value FROM shard.calls ORDER BY id",
    "INSERT OR IGNORE INTO prompts SELECT * FROM shard.prompts",
    "INSERT INTO replies SELECT NULL, qid, pass, key, value, digest FROM shard.replies ORDER BY id",
)
#: What the database says of itself once a shard is added.
_SETTINGS = {
    "records": "SELECT coalesce((SELECT value FROM main.run WHERE name = 'records'), 0) + count(*) "
    "FROM shard.records",
    "session": "SELECT max(value + 0, (SELECT coalesce(max(session), 0) FROM main.calls)) "
    "FROM main.run WHERE name = 'session'",
}


def merge_databases(shards: Sequence[Path], out: Path, card: RunCard) -> None:
    """Add the rows of `shards` to the database of the run in `out`, or make it; each as a whole.

    Scores of shards are left out: they are made of a whole run. A shard that was added before is
    not added again.

    Raises:
        RunError: a database cannot be read or written.
    """
    with Writer(out / DATABASE) as writer:
        writer.write(keep_card(card))
    try:
        with contextlib.closing(sqlite3.connect(out / DATABASE, isolation_level=None)) as db:
            for folder in shards:
                _add(db, folder)
    except sqlite3.Error as error:
        raise RunError(f"cannot merge into {out}: {error}") from None
    show_card(out, card)


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
    for setting, query in _SETTINGS.items():
        db.execute(SET, (setting, str(db.execute(query).fetchone()[0])))
    db.execute(SET, (name, folder.name))
    db.execute("COMMIT")
    db.execute("DETACH shard")
