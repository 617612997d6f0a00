"""A cached answer that was changed, and a cache that cannot be used, cost a call at most."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from ragbench.lms.reply_cache import configure_cache
from ragbench.sqlite_cache import CachedRows
from tests.fake_server import FakeServer, plausible


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(lambda hit: f"the answer to {hit.prompt.split()[-1]}") as found:
        yield found


def ask(server: FakeServer, folder: Path, question: str) -> Any:
    """The answer in a process that has just started: nothing is in memory."""
    configure_cache(folder)
    return make_lm("openai/fake", api_base=server.url)(question)[0]


@pytest.mark.parametrize("value", ["changed", b"\x00\xff", 7, "text without a sum"])
def test_a_changed_answer_or_none_is_asked_for_again_and_kept_anew(
    server: FakeServer, tmp_path: Path, value: object
) -> None:
    ask(server, tmp_path, "is one")
    if value == "changed":
        value = values(tmp_path)[0].replace(b"to one", b"to two")
    with closing(sqlite3.connect(tmp_path / "replies.sqlite", isolation_level=None)) as db:
        assert db.execute("UPDATE kept SET value = ?", (value,)).rowcount == 1
    for _ in range(2):
        assert ask(server, tmp_path, "is one") == "the answer to one"
        assert len(server.hits) == 2
    assert value not in values(tmp_path)


def values(folder: Path) -> list[bytes]:
    """What is kept."""
    with closing(sqlite3.connect(folder / "replies.sqlite")) as db:
        return [row[0] for row in db.execute("SELECT value FROM kept")]


@pytest.mark.parametrize("spoil", ["folder", "link below a file"])
def test_a_file_that_cannot_be_used_is_told_once_and_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    path = tmp_path / "kept.sqlite"
    if spoil == "folder":
        path.mkdir()
    else:
        (tmp_path / "file").write_text("")
        path.symlink_to("file/below")
    rows = CachedRows(path)
    rows.put({b"a": b"1", b"b": b"2"})
    assert rows.get([b"b"]) == {b"b": b"2"}
    assert [record.message.count("kept.sqlite (") for record in caplog.records] == [1]
    rows.close()


@pytest.mark.parametrize("start", [0, 4096])
def test_a_damaged_cache_is_made_anew_or_gone_on_without(
    server: FakeServer, tmp_path: Path, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "lm"
    ask(server, folder, "is one")
    for path in folder.glob("replies.sqlite*"):
        content = path.read_bytes()
        path.write_bytes(content[:start] + b"\xa5" * max(0, len(content) - start))
    assert ask(server, folder, "is one") == "the answer to one"
    assert ask(server, folder, "is two") == "the answer to two"
    asked = len(server.hits)
    if start == 0:
        assert caplog.text.count("Created a new one") == 1
        assert ask(server, folder, "is two") == "the answer to two"
        assert len(server.hits) == asked  # and it holds again


def test_a_reply_of_which_nothing_can_be_read_is_not_kept(
    server: FakeServer, tmp_path: Path
) -> None:
    server.script = lambda hit: "I would rather not." if hit.number < 3 else plausible(hit)
    configure_cache(tmp_path)
    lm = make_lm("openai/fake", api_base=server.url)
    predict = dspy.Predict("question -> answer: bool, why: str")
    with dspy.context(lm=lm, adapter=make_adapter("chat")):
        with pytest.raises(dspy.AdapterParseError):  # also asked as JSON
            predict(question="Where?")
        assert values(tmp_path) == []
        server.script = lambda hit: "[[ ## answer ## ]]\nyes\n\n[[ ## why ## ]]\nso"
        assert predict(question="Where?").answer is True
        predict(question="Where?")
    assert len(server.hits) == 3


def test_an_unreadable_reply_is_told_where_the_cache_was_turned_off_since(
    server: FakeServer, tmp_path: Path
) -> None:
    ask(server, tmp_path, "is one")
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    with pytest.raises(dspy.AdapterParseError):
        make_adapter("json").parse(dspy.Signature("question -> answer"), "no JSON")
