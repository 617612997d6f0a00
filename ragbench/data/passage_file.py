"""Passages in one SQLite file, read on demand, for a corpus that does not fit into memory.

A large corpus file is copied once into the index store, so that its passages stay on disk.
"""

import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ragbench.data.readers import STREAMED
from ragbench.errors import DataError
from ragbench.folder_store import FolderStore
from ragbench.passages import Passage, PassageSource, digest_line
from ragbench.text_normalization import fold

log = logging.getLogger(__name__)

#: Part of the key of a stored corpus. Increase it when the same file gives other rows.
FORMAT = 5
#: Minimum size of a file to copy. A smaller one is read into memory in seconds.
LARGE_BYTES = 64 << 20
_FILE, _DIGEST = "passages.db", "digest.txt"
_SELECT = "SELECT pid, title, text, sentences, document FROM passages"


class PassageFile(PassageSource):
    """Passages that `write_passages` wrote into `folder`. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the folder, so that another process opens the file itself."""
        return type(self), (self.folder,)

    def rows(self, query: str, *values: Any) -> sqlite3.Cursor:
        """Run a statement on the connection of this thread.

        Args:
            query: SQL statement.
            *values: Values of its parameters.
        """
        if not hasattr(self._local, "db"):
            address = f"{(self.folder / _FILE).absolute().as_uri()}?mode=ro&immutable=1"
            self._local.db = sqlite3.connect(address, uri=True)
        db: sqlite3.Connection = self._local.db  # One connection per thread.
        return db.execute(query, values)

    @cached_property
    def digest(self) -> str:
        return (self.folder / _DIGEST).read_text()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        return _Positions(self)

    def titled(self, title: str) -> list[int]:
        query = "SELECT place FROM passages WHERE folded = ? ORDER BY place"
        return [place for (place,) in self.rows(query, fold(title))]

    def __len__(self) -> int:  # Places have no gaps.
        return int(self.rows("SELECT max(place) + 1 FROM passages").fetchone()[0])

    def __iter__(self) -> Iterator[Passage]:
        return map(_passage, self.rows(f"{_SELECT} ORDER BY place"))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = int(index) + len(self) if index < 0 else int(index)
        row = self.rows(f"{_SELECT} WHERE place = ?", place).fetchone()
        if row is None:
            raise IndexError(index)
        return _passage(row)


def _passage(row: tuple[str, str, str, str, str]) -> Passage:
    pid, title, text, sentences, document = row
    return Passage(pid, title, text, tuple(json.loads(sentences)), document=document)


class _Positions(Mapping[str, int]):
    def __init__(self, file: PassageFile) -> None:
        self._file = file

    def __getitem__(self, pid: str) -> int:
        row = self._file.rows("SELECT place FROM passages WHERE pid = ?", pid).fetchone()
        if row is None:
            raise KeyError(pid)
        return int(row[0])

    def __iter__(self) -> Iterator[str]:
        return (pid for (pid,) in self._file.rows("SELECT pid FROM passages ORDER BY place"))

    def __len__(self) -> int:
        return len(self._file)


def is_large(path: Path) -> bool:
    """Return True if a corpus file has a format that streams and at least `LARGE_BYTES`."""
    streamed = path.suffix.lower() in STREAMED
    return streamed and path.is_file() and path.stat().st_size >= LARGE_BYTES


def stored_passages(
    path: Path, reading: tuple[object, ...], passages: Iterable[Passage]
) -> PassageFile:
    """Return the passages of a corpus file from the index store. Copies them if missing.

    The copy is identified by the file's inode, size and time of change, so the file is not read
    again.

    Args:
        path: Corpus file.
        reading: Settings that change how the file is read.
        passages: Passages of the file. Consumed only if there is no copy.

    Returns:
        The stored passages.

    Raises:
        DataError: A record is malformed, or the store cannot be written.
    """
    stat = path.stat()
    identity = [FORMAT, *reading, str(path.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns]
    key = f"passages-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]}"

    def write(folder: Path) -> tuple[int, str]:
        log.warning("Copying the passages of %s into the index store (once)", path)
        return write_passages(folder, passages)

    return PassageFile(FolderStore().corpus_folder(key, write))


def write_passages(folder: Path, passages: Iterable[Passage]) -> tuple[int, str]:
    """Write passages into a folder, each id once.

    Args:
        folder: Existing folder.
        passages: Passages in order.

    Returns:
        Number of passages and their digest.

    Raises:
        DataError: There are no passages, two share an id, or the file cannot be written.
    """
    state = hashlib.sha256()
    count = 0
    db = sqlite3.connect(folder / _FILE, isolation_level=None)
    try:
        # An incomplete folder is rebuilt, so durability is not needed.
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        db.execute(
            "CREATE TABLE passages (place INTEGER PRIMARY KEY, pid TEXT NOT NULL UNIQUE, "
            "title TEXT NOT NULL, folded TEXT NOT NULL, text TEXT NOT NULL, sentences TEXT, "
            "document TEXT)"
        )
        for passage in passages:
            pid = passage.pid
            title = passage.title
            text = passage.text
            sentences = json.dumps(passage.sentences)
            row = (count, pid, title, fold(title), text, sentences, passage.document)
            if db.execute("INSERT OR IGNORE INTO passages VALUES (?,?,?,?,?,?,?)", row).rowcount:
                state.update(digest_line(passage))
                count += 1
            elif db.execute(f"{_SELECT} WHERE pid = ?", (pid,)).fetchone()[2] != text:
                raise DataError(f"{pid!r} is the id of two passages with different texts")
        if not count:
            raise DataError("there are no passages")
        db.execute("CREATE INDEX by_title ON passages (folded)")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise DataError(f"cannot write {folder / _FILE}: {error}") from None
    finally:
        db.close()
    (folder / _DIGEST).write_text(state.hexdigest())
    return count, state.hexdigest()
