"""Passages on disk, read one by one: a corpus that does not fit into memory.

A folder holds the passages as JSON lines, where each of them ends, and sorted hashes of pids and of
titles, so that a passage is found by either without reading the others.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ragbench.errors import DataError
from ragbench.retrievers import Passage, PassageSource, digest_line

#: Part of the key of a stored corpus: raise it when the same file gives other bytes.
FORMAT = 1
_LINES, _ENDS, _DIGEST = "passages.jsonl", "ends.npy", "digest.txt"


class PassageFile(PassageSource):
    """The passages that `write_passages` put into `folder`. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ends: npt.NDArray[np.int64] = np.load(folder / _ENDS, mmap_mode="r")
        with (folder / _LINES).open("rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the folder by itself."""
        return type(self), (self.folder,)

    @cached_property
    def digest(self) -> str:
        """The digest of the corpus, as it was when the passages were written."""
        return (self.folder / _DIGEST).read_text()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Pid -> position."""
        return _Hashed(self, "pids")

    def titled(self, title: str) -> list[int]:
        """The positions of the passages with this title in whatever case, ascending."""
        folded = title.casefold()
        places = _Hashed(self, "titles").places(folded)
        return [place for place in places if self[place].title.casefold() == folded]

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        start = int(self._ends[place - 1]) if place else 0
        pid, title, text, sentences = json.loads(self._lines[start : int(self._ends[place])])
        return Passage(pid, title, text, tuple(sentences))


class _Hashed(Mapping[str, int]):
    """Positions by a hash of pid or title; a hit is looked at before it counts."""

    def __init__(self, file: PassageFile, name: str) -> None:
        self._file = file
        self._hashes = np.load(file.folder / f"{name}.npy", mmap_mode="r")
        self._places = np.load(file.folder / f"{name}_places.npy", mmap_mode="r")

    def places(self, text: str) -> list[int]:
        """The positions whose hash is that of `text`, ascending."""
        wanted = np.uint64(_hash(text))
        low, high = (int(np.searchsorted(self._hashes, wanted, side)) for side in ("left", "right"))
        places: list[int] = self._places[low:high].tolist()
        return places

    def __getitem__(self, pid: str) -> int:
        for place in self.places(pid):
            if self._file[place].pid == pid:
                return place
        raise KeyError(pid)

    def __iter__(self) -> Iterator[str]:
        return (passage.pid for passage in self._file)

    def __len__(self) -> int:
        return len(self._file)


def write_passages(folder: Path, passages: Iterable[Passage]) -> tuple[int, str]:
    """Write `passages` into `folder`, each pid once, and give their number and digest.

    Raises:
        DataError: two passages with one pid and different texts, or there are none.
    """
    state = hashlib.sha256()
    pids, titles, ends = array("Q"), array("Q"), array("q")
    seen: dict[int, int] = {}
    end = 0
    with (folder / _LINES).open("wb+") as file:
        for passage in passages:
            key = _hash(passage.pid)
            if (before := seen.setdefault(key, len(ends))) != len(ends):
                _check_same(file, ends, before, passage)
                continue
            state.update(digest_line(passage))
            line = json.dumps([passage.pid, passage.title, passage.text, passage.sentences])
            end += file.write(line.encode() + b"\n")
            pids.append(key)
            titles.append(_hash(passage.title.casefold()))
            ends.append(end)
    if not ends:
        raise DataError("there are no passages")
    np.save(folder / _ENDS, np.frombuffer(ends, dtype=np.int64))
    for name, hashes in (("pids", pids), ("titles", titles)):
        values = np.frombuffer(hashes, dtype=np.uint64)
        order = np.argsort(values, kind="stable").astype(np.int32)
        np.save(folder / f"{name}.npy", values[order])
        np.save(folder / f"{name}_places.npy", order)
    (folder / _DIGEST).write_text(state.hexdigest())
    return len(ends), state.hexdigest()


def _check_same(file: Any, ends: array[int], place: int, passage: Passage) -> None:
    """Raise DataError if the passage at `place` is not `passage`."""
    start = ends[place - 1] if place else 0
    here = file.tell()
    file.seek(start)
    pid, _, text, _ = json.loads(file.read(ends[place] - start))
    file.seek(here)
    if (pid, text) != (passage.pid, passage.text):
        raise DataError(f"{passage.pid!r} is the id of two passages with different texts")


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
