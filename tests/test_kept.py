"""What was paid for and is kept in SQLite files, where a file cannot be used."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ragbench.kept import KeptRows


def a_folder(path: Path) -> None:
    path.mkdir()


def link_below_a_file(path: Path) -> None:
    path.parent.joinpath("file").write_text("")
    path.symlink_to("file/below")


def test_a_file_that_is_no_database_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept.sqlite"
    path.write_bytes(b"no database, but long enough to be taken for one" * 100)
    with closing(KeptRows(path)) as rows:
        rows.put({b"a": b"1"})
    assert caplog.text.count("is made anew") == 1
    with closing(KeptRows(path)) as rows:
        assert rows.get([b"a"]) == {b"a": b"1"}


@pytest.mark.parametrize("spoil", [a_folder, link_below_a_file])
def test_a_file_that_cannot_be_used_is_told_once_and_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    path = tmp_path / "kept.sqlite"
    spoil(path)
    rows = KeptRows(path)
    rows.put({b"a": b"1", b"b": b"2"})
    assert rows.get([b"b"]) == {b"b": b"2"}
    assert [record.message.count("kept.sqlite cannot be used") for record in caplog.records] == [1]
    rows.close()
