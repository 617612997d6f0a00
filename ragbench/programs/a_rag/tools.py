"""A-RAG's three tools over the chunks of one corpus, and what they have shown of it.

A chunk is named by its position in the corpus, so that n - 1 and n + 1 stand beside chunk n.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ragbench.metrics import tokens
from ragbench.programs.core import Seen, Toolbox, ToolInfo, ToolUse, Trace, given, render
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

    def described(self) -> dict[str, ToolInfo]:
        """The tools in use, by name; where chunks cannot be read, searches show them whole."""
        whole, parts = "shows the whole chunks", "shows matching sentences"
        shows = parts if self.chunk_read else whole
        similar = whole if self.whole_chunks else shows
        top_k = (self.k, MAX_TOP_K)
        tools = {
            "keyword_search": ToolInfo(
                "keywords",
                f"find chunks with these exact words or names, each an item; {shows}",
                many=True,
                top_k=top_k,
            ),
            "semantic_search": ToolInfo("query", f"find chunks by meaning; {similar}", top_k=top_k),
            "chunk_read": ToolInfo("chunk_ids", "read whole chunks by their numbers", many=True),
        }
        return {name: tool for name, tool in tools.items() if getattr(self, name)}


class ChunkTools(Toolbox):
    """The tools of one question."""

    def __init__(self, trace: Trace, index: GranularIndex, settings: Settings) -> None:
        super().__init__(trace, settings.described())
        self.index, self.settings = index, settings
        self._read: dict[int, Passage] = {}
        self._shown: dict[int, list[str]] = {}

    def run(self, use: ToolUse) -> Seen:
        """What the tool shows."""
        value = given(use.arguments, self.tools[use.tool].argument)
        texts = listed(value, split=use.tool == "chunk_read")
        if use.tool == "chunk_read":
            return self._chunk_read(texts)
        if use.tool == "semantic_search":
            texts = [" ".join(texts)]
        return self._search(use.tool, texts, _bounded(use.arguments.get("top_k"), self.settings.k))

    def question_search(self) -> ToolUse:
        """A search for the question itself, by meaning where that tool is in use."""
        if self.settings.semantic_search:
            return ToolUse("semantic_search", {"query": self.trace.question})
        words = [word for word in dict.fromkeys(tokens(self.trace.question)) if len(word) >= _SHORT]
        return ToolUse("keyword_search", {"keywords": words or [self.trace.question]})

    @property
    def shown_nothing(self) -> bool:
        """Whether nothing of the corpus was shown so far."""
        return not self._read and not any(self._shown.values())

    def context(self, *, max_tokens: int) -> list[str]:
        """Numbered passages of all that was shown: chunks read, then the sentences of others."""
        parts = [
            replace(self.index.corpus[i], text=" ... ".join(sentences))
            for i, sentences in self._shown.items()
            if sentences and i not in self._read
        ]
        return render([*self._read.values(), *parts], max_tokens=max_tokens)

    def _search(self, tool: str, texts: Sequence[str], k: int) -> Seen:
        matches: list[Match] = []

        def find() -> list[Passage]:
            matches.extend(self._finder(tool)(texts, k))
            return [match.passage for match in matches]

        self.trace.search_by(find, ", ".join(texts), k=k)
        if not matches:
            advice = self._advice() if tool == "keyword_search" else "Nothing found."
            return Seen(advice, (), (), empty=True)
        shown = [self._show(match, similar=tool == "semantic_search") for match in matches]
        return Seen(
            "\n".join(line for line, _ in shown),
            tuple(match.passage.pid for match in matches),
            tuple(text for _, texts in shown for text in texts),
        )

    def _advice(self) -> str:
        other = ", or semantic_search" if self.settings.semantic_search else ""
        return f"No chunk matches. Try one name or word alone{other}."

    def _finder(self, tool: str) -> Callable[[Sequence[str], int], list[Match]]:
        bounded = self.settings.word_boundary
        if tool == "keyword_search":
            return lambda words, k: self.index.keyword_search(words, k=k, word_boundary=bounded)
        semantic = self.index.semantic_search
        if self.settings.whole_chunks:
            semantic = self.index.chunk_search
        return lambda query, k: semantic(" ".join(query), k=k)

    def _show(self, match: Match, *, similar: bool) -> tuple[str, Sequence[str]]:
        passage = match.passage
        number = self.index.corpus.positions[passage.pid]
        head = f"{_name(number, passage)} (similarity {passage.score:.3f})" if similar else ""
        head = head or _name(number, passage)
        short = len(passage.text.split()) <= self.settings.short_words
        if short or not self.settings.chunk_read or (similar and self.settings.whole_chunks):
            self._read[number] = passage
            return f"{head}: {passage.text}", (passage.text,)
        known = self._shown.setdefault(number, [])
        known += [sentence for sentence in match.sentences if sentence not in known]
        if not match.sentences:  # a keyword that reaches over the end of a sentence
            return head, ()
        return f"{head}: ... {' ... '.join(match.sentences)} ...", match.sentences

    def _chunk_read(self, ids: Sequence[str]) -> Seen:
        numbers = [_number(text) for text in ids]
        known = [n for n in dict.fromkeys(numbers) if n is not None and self._exists(n)]
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
                blocks.append(self._text(number))
        texts = tuple(self.index.corpus[n].text for n in new)
        pids = tuple(self.index.corpus[n].pid for n in known)
        return Seen("\n\n".join(blocks), pids, texts, empty=not new)

    def _text(self, number: int) -> str:
        passage = self.index.corpus[number]
        self._read[number] = passage
        block = f"{_name(number, passage)}:\n{passage.text}"
        near = [str(self.index.corpus.positions[p.pid]) for p in self.index.neighbours(passage.pid)]
        # Paragraphs stand in no order that means anything.
        if self.index.corpus.view == "chunk" and near:
            block += f"\n(Beside it: {' and '.join(near)}.)"
        return block

    def _exists(self, number: int) -> bool:
        return 0 <= number < len(self.index.corpus)


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


def _bounded(value: Any, default: int) -> int:
    try:
        return min(max(int(value), 1), MAX_TOP_K)
    except (TypeError, ValueError):
        return default


def _number(text: str) -> int | None:
    match = re.fullmatch(
        r"(?:chunk)?[\s_]*(?:id)?[\s#:\[(]*(\d{1,9})[\])]?\.?(?:\s*\|.*)?",
        text.strip(),
        re.IGNORECASE,
    )
    return int(match[1]) if match else None


def _name(number: int, passage: Passage) -> str:
    return f"Chunk {number} | {passage.title}" if passage.title else f"Chunk {number}"
