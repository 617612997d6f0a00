"""A-RAG's three tools over the chunks of one corpus, and what they have shown of it.

A chunk is named by its position in the corpus, so that n - 1 and n + 1 stand beside chunk n.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ragbench.errors import crossing
from ragbench.metrics.text import tokens
from ragbench.programs.trace import Trace, render
from ragbench.retrievers.base import Passage
from ragbench.retrievers.granular import GranularIndex, Match

#: The most chunks that one search may show.
MAX_TOP_K = 20

_SHORT = 4  # letters; shorter words of a question are no keywords


class Described(NamedTuple):
    """A tool as a model is told of it; `many` says that it takes a list."""

    argument: str
    does: str
    many: bool = False


class ToolUse(NamedTuple):
    """A tool that a model chose; `shown` is how its arguments stand in prompt and record."""

    tool: str
    arguments: Mapping[str, Any]
    shown: str


class Seen(NamedTuple):
    """What a tool showed: the observation, its chunks, and the texts of the corpus in it."""

    observation: str
    pids: tuple[str, ...] = ()
    retrieved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Which tools there are and how they search."""

    keyword_search: bool = True
    semantic_search: bool = True
    chunk_read: bool = True
    whole_chunks: bool = False  # semantic search embeds whole chunks, not sentences
    word_boundary: bool = False
    k: int = 5

    def described(self) -> dict[str, Described]:
        """The tools in use, by name; where chunks cannot be read, searches show them whole."""
        whole, parts = "shows the whole chunks", "shows matching sentences"
        shows = parts if self.chunk_read else whole
        similar = whole if self.whole_chunks else shows
        tools = {
            "keyword_search": Described(
                "keywords", f"find chunks with these exact words or names; {shows}", many=True
            ),
            "semantic_search": Described("query", f"find chunks by meaning; {similar}"),
            "chunk_read": Described("chunk_ids", "read whole chunks by their numbers", many=True),
        }
        return {name: tool for name, tool in tools.items() if getattr(self, name)}


class ChunkTools:
    """The tools of one question. None raises but for a spent budget."""

    def __init__(self, trace: Trace, index: GranularIndex, settings: Settings) -> None:
        self.trace, self.index, self.settings = trace, index, settings
        self.described = settings.described()
        self._read: dict[int, Passage] = {}
        self._shown: dict[int, list[str]] = {}

    def use(self, tool: str, arguments: Mapping[str, Any]) -> Seen:
        """What `tool` shows for its arguments; advice where they do not fit."""
        described = self.described.get(tool)
        if described is None:
            return Seen(f"There is no tool {tool}. Use one of {', '.join(self.described)}.")
        given = listed(_given(arguments, described.argument), split=described.many)
        if not given:
            return Seen(f"{tool} needs the argument {described.argument}.")
        with crossing("tool"):
            if tool == "chunk_read":
                return self._chunk_read(given)
            return self._search(tool, given, _bounded(arguments.get("top_k"), self.settings.k))

    def call_for_question(self) -> ToolUse:
        """A search for the question itself, by meaning where that tool is in use."""
        if self.settings.semantic_search:
            question = self.trace.question
            return ToolUse("semantic_search", {"query": question}, question)
        words = [word for word in dict.fromkeys(tokens(self.trace.question)) if len(word) >= _SHORT]
        words = words or [self.trace.question]
        return ToolUse("keyword_search", {"keywords": words}, ", ".join(words))

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

    def _search(self, tool: str, given: Sequence[str], k: int | None = None) -> Seen:
        k = k or self.settings.k
        matches: list[Match] = []

        def find() -> list[Passage]:
            matches.extend(self._finder(tool)(given, k))
            return [match.passage for match in matches]

        self.trace.search_by(find, ", ".join(given), k=k)
        if not matches:
            return Seen(self._advice() if tool == "keyword_search" else "Nothing found.")
        lines: list[str] = []
        texts: list[str] = []
        for match in matches:
            line, shown = self._show(match, similar=tool == "semantic_search")
            lines.append(line)
            texts += shown
        return Seen("\n".join(lines), tuple(m.passage.pid for m in matches), tuple(texts))

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
        if not self.settings.chunk_read or (similar and self.settings.whole_chunks):
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
        found = {passage.pid for passage in self.trace.passages}
        unseen = [self.index.corpus[n].scored(0.0) for n in new]
        if any(passage.pid not in found for passage in unseen):
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
        return Seen("\n\n".join(blocks), tuple(self.index.corpus[n].pid for n in known), texts)

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

    One text is cut at commas, semicolons and line ends where `split` says that it names several; a
    full stop at the end of one is no part of it.
    """
    if isinstance(value, str) and split and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            value = value.strip().strip("[]")
    if isinstance(value, str):
        value = [part.rstrip(" .") for part in re.split(r"[,;\n]", value)] if split else [value]
    elif not isinstance(value, list | tuple):
        value = [] if value is None else [value]
    texts = [" ".join(str(part).split()).strip("\"'") for part in value]
    return [text for text in texts if text]


def _given(arguments: Mapping[str, Any], name: str) -> Any:
    """The argument `name`, or the first one whatever a model called it."""
    others = (value for key, value in arguments.items() if key != "top_k")
    return arguments[name] if name in arguments else next(others, None)


def _bounded(value: Any, default: int) -> int:
    try:
        return min(max(int(value), 1), MAX_TOP_K)
    except (TypeError, ValueError):
        return default


def _number(text: str) -> int | None:
    found = re.fullmatch(
        r"(?:chunk)?[\s_]*(?:id)?[\s#:\[(]*(\d{1,9})[\])]?\.?", text.strip(), re.IGNORECASE
    )
    return int(found[1]) if found else None


def _name(number: int, passage: Passage) -> str:
    return f"Chunk {number} | {passage.title}" if passage.title else f"Chunk {number}"
