"""One corpus at three grains, as A-RAG searches it (Du et al. 2026): keyword, sentence, chunk.

Keyword search counts substrings, without regard to case; semantic search compares the query with
single sentences and scores a chunk by its best one; reading gives a whole chunk. The words of the
corpus prefilter keyword search, which is why it does not read every chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np

from ragbench.errors import DataError
from ragbench.record import Call
from ragbench.retrievers.base import Corpus, Passage, Progress
from ragbench.retrievers.bm25 import BM25
from ragbench.retrievers.dense import Dense
from ragbench.retrievers.store import IndexStore, opened

_WORD = re.compile(r"\w+")
_SHOWN = 5  # matching sentences shown per chunk
_PER_CHUNK = 3  # sentences searched per chunk wanted
_MIN_SENTENCE = 11  # characters; A-RAG drops shorter pieces
_STORED_FROM = 500  # sentences; fewer are embedded sooner than an index is looked up and mapped


@dataclass(frozen=True)
class Match:
    """A chunk that was found, with its score, and the sentences that matched, in text order."""

    passage: Passage
    sentences: tuple[str, ...]


class GranularIndex:
    """Keyword, sentence and chunk access to `corpus`. Thread-safe."""

    def __init__(self, corpus: Corpus, *, embedder: str = "local", api_base: str = "") -> None:
        self.corpus = corpus
        #: Whether titles are part of the text; chunks have none that means anything.
        self._titled = corpus.view == "paragraph"
        self._texts = [(str(p) if self._titled else p.text).lower() for p in corpus]
        self._sentences = [sentences_of(passage) for passage in corpus]
        self._starts = [0, *accumulate(map(len, self._sentences))]
        self._owners = [i for i, held in enumerate(self._sentences) for _ in held]
        self._words = BM25(corpus, stopwords="none", title_weight=int(self._titled))
        parts = [
            (p, text) for p, held in zip(corpus, self._sentences, strict=True) for text in held
        ]
        sentences = (
            Passage(str(n), passage.title if self._titled else "", text)
            for n, (passage, text) in enumerate(parts)
        )
        self._dense = Dense(Corpus(tuple(sentences)), embedder=embedder, api_base=api_base)
        self._chunks = Dense(corpus, embedder=embedder, api_base=api_base)
        self._vocabulary = ""
        self._store: IndexStore | None = None

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        *,
        embedder: str = "local",
        api_base: str = "",
        store: IndexStore | None = None,
    ) -> GranularIndex:
        """The index of `corpus`, the same object for the same texts and embedder.

        Each grain is indexed at its first use. An index of 500 sentences or more is kept in
        `store` (by default the usual one); the last 512 asked for stay in memory.
        """

        def make() -> GranularIndex:
            index = cls(corpus, embedder=embedder, api_base=api_base)
            if len(index._owners) >= _STORED_FROM:
                index._store = store or IndexStore()
            return index

        index: GranularIndex = opened(("granular", corpus.digest, embedder, api_base), make)
        return index

    def build_sentences(self, progress: Progress | None = None) -> None:
        """Make sentence search ready."""
        self._dense.build(self._store, progress)

    def build_chunks(self, progress: Progress | None = None) -> None:
        """Make search by whole chunks ready."""
        self._chunks.build(self._store, progress)

    @property
    def index_calls(self) -> list[Call]:
        """The calls that embedding sentences and chunks has taken in this process."""
        return [*self._dense.index_calls, *self._chunks.index_calls]

    def keyword_search(
        self, keywords: Sequence[str], *, k: int = 5, word_boundary: bool = False
    ) -> list[Match]:
        """The `k` chunks with the highest sum of occurrences times length over `keywords`.

        Occurrences are counted without overlap, in the text, and on paragraph views in the title;
        `word_boundary` counts whole words only. At most 5 sentences that hold a keyword come with
        each chunk; the first one where only the title does.
        """
        wanted = [keyword.lower() for keyword in keywords if keyword.strip()]
        scores: dict[int, int] = {}
        for keyword in wanted:
            for position in self._candidates(keyword):
                n = _count(self._texts[position], keyword, word_boundary)
                if n:
                    scores[position] = scores.get(position, 0) + n * len(keyword)
        best = sorted(scores, key=lambda position: (-scores[position], position))[: max(k, 0)]
        return [
            Match(
                self.corpus.passages[position].scored(float(scores[position])),
                self._holding(position, wanted, word_boundary),
            )
            for position in best
        ]

    def semantic_search(self, query: str, *, k: int = 5) -> list[Match]:
        """At most `k` chunks, by the best cosine of a sentence among the 3k nearest sentences.

        Fewer than `k` where several of those sentences stand in one chunk.
        """
        best: dict[int, float] = {}
        rows: dict[int, list[int]] = {}
        self.build_sentences()
        for hit in self._dense.search(query, k=_PER_CHUNK * max(k, 0)):
            row = self._dense.corpus.positions[hit.pid]
            owner = self._owners[row]
            best.setdefault(owner, hit.score)
            rows.setdefault(owner, []).append(row - self._starts[owner])
        return [
            Match(
                self.corpus.passages[owner].scored(score),
                tuple(self._sentences[owner][i] for i in sorted(rows[owner])),
            )
            for owner, score in list(best.items())[:k]
        ]

    def chunk_search(self, query: str, *, k: int = 5) -> list[Match]:
        """The `k` chunks nearest to `query`, each embedded as a whole; a match is the whole text.

        What A-RAG's ablation to a single tool searches. The chunks are embedded at the first use.
        """
        self.build_chunks()
        passages = self._chunks.search(query, k=k)
        return [Match(passage, (passage.text,)) for passage in passages]

    def read(self, pid: str) -> Passage:
        """The chunk `pid`.

        Raises:
            DataError: there is none.
        """
        return self.corpus.passages[self._position(pid)]

    def neighbours(self, pid: str) -> list[Passage]:
        """The chunks before and after `pid`, as far as there are.

        Raises:
            DataError: there is no chunk `pid`.
        """
        here = self._position(pid)
        near = [i for i in (here - 1, here + 1) if 0 <= i < len(self.corpus)]
        return [self.corpus.passages[i] for i in near]

    def _position(self, pid: str) -> int:
        if pid not in self.corpus.positions:
            raise DataError(f"no chunk has the id {pid[:80]!r}")
        return self.corpus.positions[pid]

    def _holding(self, position: int, keywords: list[str], bounded: bool) -> tuple[str, ...]:
        passage = self.corpus.passages[position]
        pieces = _pieces(passage)
        holding = (
            piece
            for piece in pieces
            if any(_count(piece.lower(), keyword, bounded) for keyword in keywords)
        )
        title = passage.title.lower() if self._titled else ""
        by_title = pieces[:1] if any(keyword in title for keyword in keywords) else []
        return tuple(islice(holding, _SHOWN)) or tuple(by_title)

    def _candidates(self, keyword: str) -> Sequence[int]:
        """Positions of all chunks that may hold `keyword`.

        A run of word characters inside the keyword stands inside one word wherever the keyword
        occurs, so only the chunks of words that contain the longest run need to be read.
        """
        runs = _WORD.findall(keyword)
        if not runs:
            return range(len(self.corpus))
        postings = [self._words.postings(word) for word in self._words_with(max(runs, key=len))]
        if not postings:
            return ()
        positions: list[int] = np.unique(np.concatenate(postings)).tolist()
        return positions

    def _words_with(self, run: str) -> Iterator[str]:
        """The words of the corpus that contain `run`."""
        self._words.build(self._store)
        if not self._vocabulary:
            self._vocabulary = "\n" + "\n".join(self._words.vocabulary) + "\n"
        text, end = self._vocabulary, 0
        while (place := text.find(run, end)) >= 0:
            end = text.index("\n", place)
            yield text[text.rindex("\n", 0, place) + 1 : end]


def sentences_of(passage: Passage) -> list[str]:
    """The sentences of `passage`, or A-RAG's pieces; those under 11 characters are left out."""
    return [piece for piece in _pieces(passage) if len(piece) >= _MIN_SENTENCE]


def _pieces(passage: Passage) -> list[str]:
    pieces = passage.sentences or re.split(r"[.!?\n]+", passage.text)
    return [piece.strip() for piece in pieces if piece.strip()]


def _count(text: str, keyword: str, bounded: bool) -> int:
    if not bounded:
        return text.count(keyword)
    return len(re.findall(rf"(?<!\w){re.escape(keyword)}(?!\w)", text))
