"""The index of BM25: for each word the passages that hold it, and its weight in each.

Made in blocks of passages, so that only the postings themselves and the vocabulary are held in
memory, and memory-mapped when loaded. The weights are those of bm25s (Lù 2024, arXiv:2407.03618),
which keeps every passage's words in memory while it indexes.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ragbench.retrievers.base import Hits
from ragbench.retrievers.scores import best

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

#: Beyond this depth one sort is faster than inserting into a sorted list.
_MAX_INSERT = 1000
#: Words counted at once.
_BLOCK_WORDS = 2_000_000
#: Up to this size a vocabulary is read into a dict when it is loaded, which takes 0.1 s.
_DICT_TO = 500_000
#: The file whose presence says that an index has words.
WORDS = "words.txt"
_ENCODING = ("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Postings:
    """A sparse matrix by word: word `t` has the weights `data[indptr[t]:indptr[t + 1]]`.

    They belong to the passages at the same places of `indices`, which ascend within a word.
    """

    words: Mapping[str, int]
    data: Floats
    indices: Ints
    indptr: Longs

    def save(self, folder: Path) -> None:
        """Write all parts into `folder`."""
        encoded = [word.encode(*_ENCODING) for word in self.words]
        (folder / WORDS).write_bytes(b"\n".join(encoded) + b"\n")
        ends = np.cumsum([len(word) + 1 for word in encoded], dtype=np.int64)
        np.save(folder / "word_ends.npy", ends)
        for name in ("data", "indices", "indptr"):
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> Postings:
        """The postings that `save` wrote, memory-mapped."""
        # asarray: numba knows arrays, not memory maps
        data, indices, indptr = (
            np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
            for name in ("data", "indices", "indptr")
        )
        path, ends = folder / WORDS, np.load(folder / "word_ends.npy", mmap_mode="r")
        words: Mapping[str, int] = _SortedWords(path, ends)
        if len(ends) <= _DICT_TO:
            listed = path.read_bytes().decode(*_ENCODING).split("\n")[:-1]
            words = {word: i for i, word in enumerate(listed)}
        return cls(words, data, indices, indptr)

    def check(self, passages: int) -> None:
        """Do nothing where every word and every posting points into the index.

        Raises:
            ValueError: one does not.
        """
        starts, places = self.indptr, self.indices
        whole = (
            len(starts) == len(self.words) + 1
            and starts[0] == 0
            and bool((np.diff(starts) >= 0).all())
            and starts[-1] == len(places) == len(self.data)
        )
        if whole and len(places):
            falls = 1 + np.flatnonzero(places[1:] <= places[:-1])  # only where a word begins
            whole = 0 <= places.min() <= places.max() < passages and np.isin(falls, starts).all()
        if not whole:
            raise ValueError(f"its postings do not fit a corpus of {passages} passages")

    def by_passage(self, passages: int) -> Any:
        """The same weights as a scipy matrix by column: of each passage the places of its words."""
        from scipy.sparse import csr_matrix

        shape = (len(self.words), passages)
        return csr_matrix((self.data, self.indices, self.indptr), shape=shape).tocsc()


def make_postings(texts: Iterable[Sequence[str]], *, k1: float, b: float) -> Postings | None:
    """The postings of the passages whose words are `texts`, in order; None where none has a word.

    The weight of a word is idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)).
    """
    from scipy.sparse import vstack

    seen, lengths = _Numbered(), array("i")
    blocks = list(_blocks(texts, seen, lengths))
    if not seen:
        return None
    words, n = sorted(seen), len(lengths)
    place = np.empty(len(words), dtype=np.int32)  # a word's number -> its place in the vocabulary
    place[[seen[word] for word in words]] = np.arange(len(words))
    for block in blocks:
        block.indices = place[block.indices]
        block.resize(block.shape[0], len(words))
    counts = vstack(blocks, format="csr").tocsc()
    blocks.clear()
    held = np.diff(counts.indptr)
    sizes = np.frombuffer(lengths, dtype=np.int32)
    norm = k1 * (1 - b + b * sizes / sizes.mean())
    idf = np.log1p((n - held + 0.5) / (held + 0.5)) * (k1 + 1)
    data = np.repeat(idf.astype(np.float32), held)
    data *= counts.data / (counts.data + norm.astype(np.float32)[counts.indices])
    indices, indptr = counts.indices.astype(np.int32), counts.indptr.astype(np.int64)
    return Postings({word: i for i, word in enumerate(words)}, data, indices, indptr)


class _Numbered(dict[str, int]):
    """Word -> a number, in the order in which they are first looked up."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def _blocks(texts: Iterable[Sequence[str]], seen: _Numbered, lengths: array[int]) -> Iterator[Any]:
    """How often each word is in each of some passages, a matrix at a time; fills the rest."""
    from scipy.sparse import csr_matrix

    ids, sizes = array("i"), array("i")

    def counted() -> Any:
        starts = np.concatenate([[0], np.cumsum(sizes)])
        ones = np.ones(len(ids), dtype=np.float32)
        block = csr_matrix((ones, np.array(ids), starts), shape=(len(sizes), max(len(seen), 1)))
        block.sum_duplicates()
        return block

    for words in texts:
        ids.extend(map(seen.__getitem__, words))
        sizes.append(len(words))
        lengths.append(len(words))
        if len(ids) >= _BLOCK_WORDS:
            yield counted()
            ids, sizes = array("i"), array("i")
    if sizes:
        yield counted()


class _SortedWords(Mapping[str, int]):
    """A large vocabulary on disk, in ascending order, searched by halving."""

    def __init__(self, path: Path, ends: Longs) -> None:
        with path.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends = ends

    def _word(self, place: int) -> bytes:
        start = int(self._ends[place - 1]) if place else 0
        return self._text[start : int(self._ends[place]) - 1]

    def __getitem__(self, word: str) -> int:
        encoded = word.encode(*_ENCODING)
        place = bisect_left(range(len(self)), encoded, key=self._word)
        if place == len(self) or self._word(place) != encoded:
            raise KeyError(word)
        return place

    def __iter__(self) -> Iterator[str]:
        return (self._word(place).decode(*_ENCODING) for place in range(len(self)))

    def __len__(self) -> int:
        return len(self._ends)


#: Passages whose sums are held at once: 64 KB.
BLOCK = 16_384
#: Sums that are compared together with the worst of the best.
_STRIP = 64


@cache
def compiled_search() -> Callable[..., tuple[Ints, Floats]]:
    """`_search` compiled: once per machine, where there is a folder to keep it in."""
    import numba
    from numba import types

    def array(kind: Any) -> Any:
        return types.Array(kind, 1, "C", readonly=True)  # a memory-mapped index is read-only

    floats, ints = types.Array(types.float32, 1, "C"), types.Array(types.int32, 1, "C")
    signature = types.Tuple((ints, floats))(
        array(types.int32),
        array(types.float32),
        array(types.int32),
        array(types.int64),
        *(types.int64,) * 3,
    )
    try:
        compiled: Any = numba.njit(signature, nogil=True, cache=True)(_search)
    except RuntimeError:  # no folder to keep compiled code in
        compiled = numba.njit(signature, nogil=True)(_search)
    return compiled  # type: ignore[no-any-return]


def _search(
    terms: Ints, data: Floats, indices: Ints, indptr: Longs, n: int, k: int, block: int
) -> tuple[Ints, Floats]:
    """The positions and the sums of the `k` best of `n`, `block` of them at a time."""
    cursor = indptr[terms]
    sums = np.zeros(min(n, block) + _STRIP, dtype=np.float32)  # whole strips; the rest stays 0
    positions, values = np.empty(k, dtype=np.int32), np.empty(k, dtype=np.float32)
    held, worst = 0, np.float32(0)
    for start in range(0, n, block):
        stop = min(start + block, n)
        for t in range(len(terms)):
            j, end = cursor[t], indptr[terms[t] + 1]
            while j < end and indices[j] < stop:
                sums[np.uint64(indices[j] - start)] += data[j]
                j += 1
            cursor[t] = j
        for strip in range(0, stop - start, _STRIP):
            better = 0
            for i in range(strip, strip + _STRIP):
                better += sums[np.uint64(i)] > worst
            if not better:
                continue
            for i in range(strip, strip + _STRIP):
                score = sums[i]
                if score <= worst:
                    continue
                slot = held if held < k else k - 1
                while slot > 0 and values[slot - 1] < score:
                    values[slot], positions[slot] = values[slot - 1], positions[slot - 1]
                    slot -= 1
                values[slot], positions[slot] = score, start + i
                held = min(held + 1, k)
                if held == k:
                    worst = values[k - 1]
        sums[:] = 0
    return positions[:held].copy(), values[:held].copy()


def sparse_search(terms: Ints, postings: Postings, n: int, k: int, *, compiled: bool) -> Hits:
    """The `k` best of `n` passages by the summed weights of `terms`, which may repeat.

    `compiled` uses the compiled kernel, with the same result.
    """
    data, indices, indptr = postings.data, postings.indices, postings.indptr
    if compiled and k <= _MAX_INSERT:
        positions, values = compiled_search()(terms, data, indices, indptr, n, k, BLOCK)
        return list(zip(positions.tolist(), values.tolist(), strict=True))
    scores = np.zeros(n, dtype=np.float32)
    for term in terms:
        held = slice(indptr[term], indptr[term + 1])
        scores[indices[held]] += data[held]
    return best(scores, k)
