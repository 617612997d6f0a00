"""BM25 (Robertson et al. 1994) over precomputed weights.

The score of a passage is the sum, over the words of the query with their repeats, of
idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)), with Lucene's idf, which is
never negative. The weights are those of bm25s (Lù 2024, arXiv:2407.03618), which keeps every
passage's words in memory while it indexes. Here passages are counted in blocks, and the index is
memory-mapped when it is loaded.
"""

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import RETRIEVERS, Hits, Progress, Ranking, best
from ragbench.text_normalization import words

#: Lucene's English stop words.
_STOPWORDS = frozenset(
    words(
        "a an and are as at be but by for if in into is it no not of on or such that the their "
        "then there these they this to was will with"
    )
)
#: Words counted at once.
_BLOCK_WORDS = 2_000_000


class BM25Settings(Knobs):
    """Knobs of BM25."""

    stopwords: Literal["en", "none"] = Field("en", description="words left out")
    title_weight: int = Field(
        1, ge=0, le=20, description="times that the words of the title are counted"
    )
    k1: float = Field(
        0.9, ge=0, le=10, description="saturation of repeated words; 0 ignores repeats"
    )
    b: float = Field(0.4, ge=0, le=1, description="normalisation by length; 0 for none, 1 for full")


def words_of(text: str, stopwords: str = "en") -> list[str]:
    """Split `text` into folded words, in order, with repeats, without stop words.

    Args:
        text: Any text.
        stopwords: "en" removes English stop words, "none" keeps them.
    """
    if stopwords == "none":
        return words(text)
    return [word for word in words(text) if word not in _STOPWORDS]


@dataclass(frozen=True)
class Postings:
    """Sparse matrix of words and passages, ordered by word.

    `words` are hashes of the words, ascending. The chance that two of five million words share a
    hash is one in a million. The weights of word `t` are `data[indptr[t]:indptr[t + 1]]`. The same
    slice of `indices` has their passages, ascending.
    """

    words: npt.NDArray[np.uint64]
    data: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int64]

    def save(self, folder: Path) -> None:
        for field in fields(self):
            np.save(folder / f"{field.name}.npy", getattr(self, field.name))

    @classmethod
    def load(cls, folder: Path) -> "Postings":
        """Load postings that `save` wrote, memory-mapped."""
        files = [folder / f"{field.name}.npy" for field in fields(cls)]
        # Slices of a plain array are faster than those of a `memmap`.
        return cls(*(np.asarray(np.load(file, mmap_mode="r")) for file in files))

    def places(self, words: Sequence[str]) -> list[int]:
        """Return the places of the known words, with repeats."""
        keys = _keys(words)
        places = np.searchsorted(self.words, keys)
        is_known = self.words[np.minimum(places, len(self.words) - 1)] == keys
        places_known: list[int] = places[is_known].tolist()
        return places_known

    def by_passage(self, n: int) -> Any:
        """Return the weights as a sparse column matrix of shape (words, passages)."""
        from scipy.sparse import csr_matrix

        shape = (len(self.words), n)
        return csr_matrix((self.data, self.indices, self.indptr), shape=shape).tocsc()

    def search(
        self, words: Sequence[str], n: int, k: int, scores: npt.NDArray[np.float32] | None = None
    ) -> Hits:
        """Rank passages by the sum of their weights.

        Args:
            words: Words of the query, with repeats.
            n: Number of passages.
            k: Maximum number of hits.
            scores: Array of shape (n,) to overwrite. None: a new array.

        Returns:
            Positions and scores, best first.
        """
        if scores is None:
            scores = np.empty(n, dtype=np.float32)
        scores.fill(0)
        for place in self.places(words):
            held = slice(*self.indptr[place : place + 2])
            np.add.at(scores, self.indices[held], self.data[held])
        return best(scores, k)


def make_postings(texts: Iterable[Sequence[str]], *, k1: float, b: float) -> Postings | None:
    """Compute the postings of passages.

    The weight of a word is idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)).

    Args:
        texts: Words of each passage, in order.
        k1: Saturation of repeated words, >= 0.
        b: Length normalization, in [0, 1].

    Returns:
        The postings. None if no passage has a word.
    """
    from scipy.sparse import vstack

    numbers: dict[str, int] = defaultdict(count().__next__)  # in the order of their first use
    lengths = array("i")
    blocks = list(_blocks(texts, numbers, lengths))
    if not numbers:
        return None
    keys = _keys(list(numbers))
    order = np.argsort(keys)
    n = len(lengths)
    place = np.empty(len(keys), dtype=np.int32)  # a word's number -> its place
    place[order] = np.arange(len(keys))
    for block in blocks:
        block.indices = place[block.indices]
        block.resize(block.shape[0], len(keys))
    counts = vstack(blocks, format="csr").tocsc()
    blocks.clear()
    held = np.diff(counts.indptr)
    sizes = np.frombuffer(lengths, dtype=np.int32)
    norm = k1 * (1 - b + b * sizes / sizes.mean())
    idf = np.log1p((n - held + 0.5) / (held + 0.5)) * (k1 + 1)
    data = np.repeat(idf.astype(np.float32), held)
    data *= counts.data / (counts.data + norm.astype(np.float32)[counts.indices])
    indices = counts.indices.astype(np.int32)
    indptr = counts.indptr.astype(np.int64)
    return Postings(keys[order], data, indices, indptr)


def _keys(words: Sequence[str]) -> npt.NDArray[np.uint64]:
    encoded = (word.encode("utf-8", "surrogatepass") for word in words)
    hashes = b"".join(hashlib.blake2b(word, digest_size=8).digest() for word in encoded)
    return np.frombuffer(hashes, dtype="<u8")


def _blocks(
    texts: Iterable[Sequence[str]], numbers: dict[str, int], lengths: "array[int]"
) -> Iterator[Any]:
    """Yield term counts of blocks of passages as sparse matrices. Fill `numbers` and `lengths`."""
    from scipy.sparse import csr_matrix

    bags = iter(texts)
    while True:
        ids = array("i")
        starts = array("q", [0])
        for bag in bags:
            ids.extend(map(numbers.__getitem__, bag))
            starts.append(len(ids))
            lengths.append(len(bag))
            if len(ids) >= _BLOCK_WORDS:
                break
        n = len(starts) - 1
        if not n:
            return
        ones = np.ones(len(ids), dtype=np.float32)
        shape = (n, max(len(numbers), 1))
        block = csr_matrix((ones, np.array(ids), np.array(starts)), shape=shape)
        block.sum_duplicates()
        yield block


@RETRIEVERS.register("bm25")
class BM25(Ranking):
    """Lexical search."""

    name = "bm25"
    Settings = BM25Settings
    is_stored = True
    index_version = 5

    postings: Postings | None = None  # remains None if no passage has words
    #: Scores of all passages, reused: 20 MB for 5 million passages, and new memory is slow.
    _scores: npt.NDArray[np.float32] | None = None

    def words(self, text: str) -> list[str]:
        """Split `text` into the words that are indexed."""
        return words_of(text, self.settings.stopwords)

    def facts(self) -> dict[str, Any]:
        return {"words": len(self.postings.words) if self.postings else 0}

    def _hits(self, queries: Sequence[str], k: int) -> Sequence[Hits]:
        if self.postings is None:
            return [[] for _ in queries]
        n = len(self.corpus)
        with self._lock:
            if self._scores is None:
                self._scores = np.empty(n, dtype=np.float32)
            return [
                self.postings.search(self.words(query), n, k, self._scores) for query in queries
            ]

    def _make(self, progress: Progress | None) -> None:
        def counted() -> Iterator[list[str]]:
            n = len(self.corpus)
            weight = self.settings.title_weight
            for done, passage in enumerate(self.corpus.passages, start=1):
                yield self.words(passage.title) * weight + self.words(passage.text)
                if progress and (done % 1000 == 0 or done == n):
                    progress(done, n)

        self.postings = make_postings(counted(), k1=self.settings.k1, b=self.settings.b)

    def _save(self, folder: Path) -> None:
        if self.postings is not None:
            self.postings.save(folder)

    def _load(self, folder: Path) -> None:
        if (folder / "words.npy").exists():
            self.postings = Postings.load(folder)
