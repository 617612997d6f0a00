"""The gate to stored files: what a stranger or a kill left in a folder is refused or mended."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragbench.cli.printing import show
from ragbench.errors import RunError
from ragbench.experiments.report.run_list import run_list_report
from ragbench.experiments.store import (
    DATABASE,
    RunFolder,
    Store,
    locked,
    read_card,
    read_object,
    read_records,
    reader,
)
from ragbench.logs import get, log_to
from tests.experiments.scored_runs import CARD, answered, four, make_run

#: Writes so much in one transaction that SQLite puts a part into the file, and is killed.
_KILLED_WRITER = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE records SET answer = 'half written'")
for number in range(200):
    db.execute("INSERT INTO prompts VALUES (?, zeroblob(5000))", (str(number),))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _no_wait() -> Iterator[None]:
    """What waits for a pipe or reads without an end fails, instead of hanging."""

    def late(*_: object) -> None:
        raise AssertionError("it took more than 60 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", four())


def test_a_write_that_a_kill_cut_short_is_taken_back_by_the_first_reader(run: Path) -> None:
    before = (run / DATABASE).read_bytes()
    killed = subprocess.run([sys.executable, "-c", _KILLED_WRITER, run / DATABASE], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (run / f"{DATABASE}-journal").stat().st_size
    assert (run / DATABASE).read_bytes() != before
    assert dict(read_records(run)) == {record.qid: record for record in four()}
    assert not (run / f"{DATABASE}-journal").exists()
    with Store(run) as store:
        store.write(answered("q9", "Norway"))
    assert len(read_records(run)) == 5


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE records; CREATE VIEW records AS WITH RECURSIVE n(id) AS "
        "(SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, id AS qid FROM n",
        "DROP VIEW answers; CREATE VIEW answers AS WITH RECURSIVE n(qid) AS "
        "(SELECT 1 UNION ALL SELECT qid + 1 FROM n) SELECT * FROM n",
        "DROP TABLE prompts; CREATE VIEW prompts AS SELECT 1 AS id, zeroblob(999999999) AS text",
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE TABLE more (a)",
        "ALTER TABLE records ADD COLUMN evil GENERATED ALWAYS AS (zeroblob(999999999))",
    ],
)
def test_a_database_with_other_tables_or_views_is_refused(run: Path, statement: str) -> None:
    database = sqlite3.connect(run / DATABASE)
    database.executescript(statement)
    database.close()
    with pytest.raises(RunError, match="it has other tables or views"):
        RunFolder(run)
    with pytest.raises(RunError, match="it has other tables or views"), Store(run) as store:
        store.write(answered("q9", "a"))


def test_a_tree_with_more_rows_than_its_file_can_hold_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_LEAST_ROW", (run / DATABASE).stat().st_size // 3)
    with pytest.raises(RunError, match="more rows than its size allows"):
        read_records(run)


def test_a_statement_without_a_row_ends(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_SECONDS", 0.05)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    with pytest.raises(RunError, match="interrupted"):
        list(RunFolder(run).reader.rows(endless))


@pytest.mark.parametrize("special", ["pipe", "/dev/zero"])
def test_read_of_a_pipe_or_a_device_is_refused(run: Path, special: str) -> None:
    def put(name: str) -> Path:
        path = run / name
        path.unlink(missing_ok=True)
        os.mkfifo(path) if special == "pipe" else path.symlink_to(special)
        return path

    with pytest.raises(RunError, match="it is not a regular file"):
        read_object(put("other.json"))
    put("card.json")
    assert read_card(run).model == CARD["model"]  # The database has it too.
    for end in ("-wal", "-shm", "-journal", ""):
        path = put(f"{DATABASE}{end}")
        with pytest.raises(RunError, match=r"it is not a regular file|is not a run folder|no file"):
            read_card(run)
        path.unlink()


@pytest.mark.parametrize("kind", ["pipe", "large", "folder"])
def test_a_log_that_is_no_plain_file_of_usual_size_costs_a_warning(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(20 * 2**30)
    with log_to(path):
        get("ragbench").info("something")
    assert "cannot write" in caplog.text


def test_a_file_that_is_too_large_is_one_line(run: Path, tmp_path: Path) -> None:
    with (run / "card.json").open("r+b") as file:
        file.truncate(20 * 2**30)
    with pytest.raises(RunError, match=r"it has 21,474,836,480 bytes, more than 268,435,456"):
        read_object(run / "card.json")
    with pytest.raises(RunError, match="it is not a run card"):
        show(run_list_report(tmp_path))


def test_a_kept_text_that_grows_without_an_end_is_left_out(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "a"
    database = sqlite3.connect(run / DATABASE)
    database.execute("INSERT INTO prompts VALUES (?, ?)", (name, zlib.compress(bytes(2**27), 9)))
    database.commit()
    database.close()
    assert RunFolder(run).texts([name]) == {}
    assert "skipping a damaged text of a call" in caplog.text


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINVAL, errno.ENOSYS])
def test_locked_on_a_file_system_without_locks_is_one_line_at_once(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.lockf", refuse)
    begun = time.monotonic()
    with pytest.raises(RunError, match=r"cannot lock files in .*--out"), locked(tmp_path / "run"):
        raise AssertionError("it was locked")
    assert time.monotonic() - begun < 5
