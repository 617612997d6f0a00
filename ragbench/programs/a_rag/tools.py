"""A-RAG's three tools over the chunks of one corpus, and what they have shown of it.

A chunk is named by its position in the corpus, so that n - 1 and n + 1 stand beside chunk n.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ragbench.metrics import tokens
from ragbench.programs.core import Trace
from ragbench.programs.core.tools import Seen, Toolbox, ToolUse
from ragbench.retrievers import GranularIndex, Match, Passage

#: The most chunks that one search may show.
MAX_TOP_K = 20

_SHORT = 4  # letters; shorter words of a question are no keywords


@dataclass(frozen=True)
class Settings:
    """Which tools there are and how they search."""

    keyword_search: bool = True
    semantic_search: bool = True
    chunk_read: bool = True
    whole_chunks: bool = False  # semantic search embeds whole chunks, not sentences
    word_boundary: bool = False
    k: int = 5
    short_words: int = 0  # chunks of at most so many words are shown whole

    @property
    def names(self) -> tuple[str, ...]:
        """The tools in use."""
        every = ("keyword_search", "semantic_search", "chunk_read")
        return tuple(name for name in every if getattr(self, name))


class ChunkTools(Toolbox):
    """The tools of one question; where chunks cannot be read, searches show them whole."""

    def __init__(self, trace: Trace, index: GranularIndex, settings: Settings) -> None:
        super().__init__(trace, settings.names)
        self.index, self.settings = index, settings
        self._read: set[int] = set()
        top_k = {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K, "default": settings.k}
        for name in self.tools.keys() & {"keyword_search", "semantic_search"}:
            tool = self.tools[name]
            tool.args["top_k"] = top_k
            semantic = name == "semantic_search" and settings.whole_chunks
            whole = semantic or not settings.chunk_read
            parts = "the whole chunks" if whole else "matching sentences"
            tool.desc = f"{tool.desc.removesuffix('.')}; shows {parts}."

    def keyword_search(self, keywords: list[str], top_k: int | None = None) -> Seen:
        """Find chunks with these exact words or names, each an item."""
        words = listed(keywords, split=False)
        bounded = self.settings.word_boundary
        return self._search(
            ", ".join(words),
            top_k,
            lambda k: self.index.keyword_search(words, k=k, word_boundary=bounded),
        )

    def semantic_search(self, query: str, top_k: int | None = None) -> Seen:
        """Find chunks by meaning."""
        query = " ".join(listed(query, split=False))
        find = self.index.semantic_search
        if self.settings.whole_chunks:
            find = self.index.chunk_search
        return self._search(query, top_k, lambda k: find(query, k=k), similar=True)

    def chunk_read(self, chunk_ids: list[str]) -> Seen:
        """Read whole chunks by their numbers."""
        ids = listed(chunk_ids, split=True)
        numbers = [_number(text) for text in ids]
        size = len(self.index.corpus)
        known = [n for n in dict.fromkeys(numbers) if n is not None and 0 <= n < size]
        new = [n for n in known if n not in self._read]
        shown = {passage.pid for passage in self.trace.passages}
        unseen = [self.index.corpus[n].scored(0.0) for n in new]
        if any(passage.pid not in shown for passage in unseen):
            query = f"chunk_read {', '.join(map(str, new))}"
            self.trace.search_by(lambda: unseen, query, k=len(new))
        blocks: list[str] = []
        for text, number in zip(ids, numbers, strict=True):
            if number is None or number not in known:
                blocks.append(f"Chunk {text}: not found.")
            elif number in self._read:
                blocks.append(f"Chunk {number} has been read before.")
            else:
                self._read.add(number)
                blocks.append(self._text(number))
        texts = tuple(self.index.corpus[n].text for n in new)
        pids = tuple(self.index.corpus[n].pid for n in known)
        return Seen("\n\n".join(blocks), pids, texts, empty=not new)

    def question_search(self) -> ToolUse:
        """A search for the question itself, by meaning where that tool is in use."""
        if self.settings.semantic_search:
            return ToolUse("semantic_search", {"query": self.trace.question})
        words = [word for word in dict.fromkeys(tokens(self.trace.question)) if len(word) >= _SHORT]
        return ToolUse("keyword_search", {"keywords": words or [self.trace.question]})

    def _search(self, query: str, top_k: Any, find: Any, *, similar: bool = False) -> Seen:
        k = self.settings.k
        with suppress(TypeError, ValueError):  # none, or no number
            k = min(max(int(top_k), 1), MAX_TOP_K)
        matches: list[Match] = []

        def found() -> list[Passage]:
            matches.extend(find(k))
            return [match.passage for match in matches]

        self.trace.search_by(found, query, k=k)
        if not matches:
            other = ", or semantic_search" if self.settings.semantic_search else ""
            advice = f"No chunk matches. Try one name or word alone{other}."
            return Seen("Nothing found." if similar else advice, (), (), empty=True)
        shown = [self._show(match, similar=similar) for match in matches]
        return Seen(
            "\n".join(line for line, _ in shown),
            tuple(match.passage.pid for match in matches),
            tuple(text for _, texts in shown for text in texts),
        )

    def _show(self, match: Match, *, similar: bool) -> tuple[str, Sequence[str]]:
        passage, settings = match.passage, self.settings
        number = self.index.corpus.positions[passage.pid]
        head = _name(number, passage)
        if similar:
            head += f" (similarity {passage.score:.3f})"
        short = len(passage.text.split()) <= settings.short_words
        if short or not settings.chunk_read or (similar and settings.whole_chunks):
            self._read.add(number)
            return f"{head}: {passage.text}", (passage.text,)
        if not match.sentences:  # a keyword that reaches over the end of a sentence
            return head, ()
        return f"{head}: ... {' ... '.join(match.sentences)} ...", match.sentences

    def _text(self, number: int) -> str:
        passage = self.index.corpus[number]
        block = f"{_name(number, passage)}:\n{passage.text}"
        near = [str(self.index.corpus.positions[p.pid]) for p in self.index.neighbours(passage.pid)]
        # Paragraphs stand in no order that means anything.
        if self.index.corpus.view == "chunk" and near:
            block += f"\n(Beside it: {' and '.join(near)}.)"
        return block


def listed(value: Any, *, split: bool) -> list[str]:
    """The texts that a model gave as an argument: a list, JSON, or one text.

    They are cut at commas, semicolons and line ends where `split` says so; keywords never are, for
    names have commas. A full stop at the end of a text is no part of it.
    """
    if isinstance(value, str) and value.strip().startswith("["):
        with suppress(ValueError):
            value = json.loads(value)
    parts = value if isinstance(value, list | tuple) else [] if value is None else [value]
    texts = [str(part) for part in parts]
    if split:
        texts = [piece for text in texts for piece in re.split(r"[,;\n]", text.strip("[] "))]
    texts = [" ".join(text.split()).rstrip(" .").strip("\"'") for text in texts]
    return [text for text in texts if text]


def _number(text: str) -> int | None:
    match = re.fullmatch(
        r"(?:chunk)?[\s_]*(?:id)?[\s#:\[(]*(\d{1,9})[\])]?\.?(?:\s*\|.*)?",
        text.strip(),
        re.IGNORECASE,
    )
    return int(match[1]) if match else None


def _name(number: int, passage: Passage) -> str:
    return f"Chunk {number} | {passage.title}" if passage.title else f"Chunk {number}"
