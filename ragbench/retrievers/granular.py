"""Search one corpus by keyword, sentence and chunk, as A-RAG does (Du et al. 2026).

Keyword search counts substrings in every chunk, ignoring case. Semantic search compares the query
with single sentences and scores a chunk by its best one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ragbench.passages import Corpus, Passage
from ragbench.record import Call
from ragbench.retrievers.base import Progress
from ragbench.retrievers.dense import Dense
from ragbench.retrievers.store import IndexStore, opened

_SHOWN = 5  # matching sentences shown per chunk
_PER_CHUNK = 3  # sentences searched per chunk wanted
_MIN_SENTENCE = 11  # characters. A-RAG drops shorter pieces
_STORED_FROM = 500  # sentences. Fewer are embedded sooner than an index is looked up and mapped


@dataclass(frozen=True)
class Match:
    """A chunk that was found, with its score, and the sentences that matched, in text order."""

    passage: Passage
    sentences: tuple[str, ...]


class GranularIndex:
    """Keyword, sentence and chunk access to `corpus`. Thread-safe."""

    def __init__(self, corpus: Corpus, *, embedder: str = "local", api_base: str = "") -> None:
        self.corpus = corpus
        #: Titles are part of the text, except for chunks, whose titles have no meaning.
        self._titles = [p.title if corpus.view == "paragraph" else "" for p in corpus]
        texts = zip(corpus, self._titles, strict=True)
        self._texts = [(str(p) if title else p.text).lower() for p, title in texts]
        self._owners: list[int] = []
        sentences: list[Passage] = []
        for i, passage in enumerate(corpus):
            for sentence in _pieces(passage):
                if len(sentence) >= _MIN_SENTENCE:
                    self._owners.append(i)
                    sentences.append(Passage(str(len(sentences)), self._titles[i], sentence))
        sentence_corpus = Corpus(tuple(sentences), plain=corpus.plain)
        self._dense = Dense(sentence_corpus, embedder=embedder, api_base=api_base)
        self._chunks = Dense(corpus, embedder=embedder, api_base=api_base)
        self._store = IndexStore() if len(sentences) >= _STORED_FROM else None

    @classmethod
    def of(cls, corpus: Corpus, *, embedder: str = "local", api_base: str = "") -> GranularIndex:
        """Return the index of `corpus`, the same object for the same texts and embedder.

        Vectors are computed at first use. An index of 500 sentences or more is stored. The last 512
        indexes stay in memory.

        Args:
            corpus: Chunks to search.
            embedder: Spec of the embedder.
            api_base: Address of the embedder's server.
        """
        index: GranularIndex = opened(
            ("granular", corpus.digest, embedder, api_base),
            lambda: cls(corpus, embedder=embedder, api_base=api_base),
        )
        return index

    def build_sentences(self, progress: Progress | None = None) -> None:
        self._dense.build(self._store, progress)

    def build_chunks(self, progress: Progress | None = None) -> None:
        self._chunks.build(self._store, progress)

    @property
    def index_calls(self) -> list[Call]:
        """The calls that embedding sentences and chunks has taken in this process."""
        return [*self._dense.index_calls, *self._chunks.index_calls]

    def keyword_search(self, keywords: Sequence[str], *, k: int = 5) -> list[Match]:
        """Find the chunks with the highest sum of occurrences times length over `keywords`.

        Occurrences do not overlap. They are counted in the text, and in the title of a paragraph
        view.

        Args:
            keywords: Substrings to count, ignoring case.
            k: Maximum number of chunks.

        Returns:
            Chunks with at most 5 sentences that contain a keyword each, or with the first sentence
            if
            only the title contains one.
        """
        lowered = list(map(str.lower, filter(str.strip, keywords)))
        scores = {}
        for position, text in enumerate(self._texts):
            score = sum(text.count(word) * len(word) for word in lowered)
            if score:
                scores[position] = float(score)
        matches = []
        for i in sorted(scores, key=lambda position: -scores[position])[: max(k, 0)]:
            matches.append(Match(self.corpus[i].scored(scores[i]), self._holding(i, lowered)))
        return matches

    def semantic_search(self, query: str, *, k: int = 5) -> list[Match]:
        """Find at most `k` chunks by the best cosine of a sentence among the 3k nearest sentences.

        Returns fewer than `k` if a chunk has several of those sentences.

        Args:
            query: Text of the query.
            k: Maximum number of chunks.
        """
        best: dict[int, float] = {}
        rows: dict[int, list[int]] = {}
        self.build_sentences()
        for hit in self._dense.search(query, k=_PER_CHUNK * max(k, 0)):
            row = int(hit.pid)
            owner = self._owners[row]
            best.setdefault(owner, hit.score)
            rows.setdefault(owner, []).append(row)
        matches = []
        for owner, score in list(best.items())[:k]:
            texts = tuple(self._dense.corpus[row].text for row in sorted(rows[owner]))
            matches.append(Match(self.corpus.passages[owner].scored(score), texts))
        return matches

    def chunk_search(self, query: str, *, k: int = 5) -> list[Match]:
        """Find the chunks nearest to a query, each embedded as a whole.

        A-RAG's single-tool ablation uses this search. A match is the full text. The chunks are
        embedded at first use.

        Args:
            query: Text of the query.
            k: Maximum number of chunks.
        """
        self.build_chunks()
        passages = self._chunks.search(query, k=k)
        return [Match(passage, (passage.text,)) for passage in passages]

    def neighbours(self, pid: str) -> list[Passage]:
        """Return the existing chunks before and after `pid`."""
        here = self.corpus.positions[pid]
        return [self.corpus[i] for i in (here - 1, here + 1) if 0 <= i < len(self.corpus)]

    def _holding(self, position: int, keywords: list[str]) -> tuple[str, ...]:
        pieces = _pieces(self.corpus[position])
        holding = []
        for piece in pieces:
            if any(word in piece.lower() for word in keywords):
                holding.append(piece)
        in_title = any(word in self._titles[position].lower() for word in keywords)
        return tuple(holding[:_SHOWN] or (pieces[:1] if in_title else ()))


def _pieces(passage: Passage) -> list[str]:
    """Return the sentences of `passage`, or A-RAG's pieces."""
    pieces = passage.sentences or re.split(r"[.!?\n]+", passage.text)
    return list(filter(None, map(str.strip, pieces)))
