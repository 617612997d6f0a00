"""Tools over one corpus for programs whose model chooses what to do next.

A toolbox lives for one question. Each public tool takes one text and returns the observation that
the model sees; none raises but for a spent budget.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ragbench.errors import crossing
from ragbench.metrics.text import normalise_answer
from ragbench.programs.drivers import sentences_of
from ragbench.programs.trace import Trace
from ragbench.retrievers.base import Passage

#: Sentences of a page that a search shows, and titles it offers where no page fits (ReAct).
PAGE_SENTENCES = 5
SIMILAR_TITLES = 5


class Toolbox(ABC):
    """The tools `search` and `lookup` of one question."""

    #: tool -> (argument, description), as the model is told.
    described: ClassVar[dict[str, tuple[str, str]]]

    def __init__(self, trace: Trace, *, k: int, snippet_words: int) -> None:
        self.trace, self.k, self.snippet_words = trace, k, snippet_words

    @property
    @abstractmethod
    def can_look_up(self) -> bool:
        """Whether there is something to look in."""

    @abstractmethod
    def search(self, query: str) -> str:
        """What a search for `query` shows."""

    @abstractmethod
    def lookup(self, text: str) -> str:
        """The sentences that contain `text`, without regard to case."""

    def use(self, tool: str, text: str) -> str:
        """The observation of `tool` with the argument `text`; advice where they do not fit."""
        run = {"search": self.search, "lookup": self.lookup}.get(tool)
        if run is None:
            return f"There is no tool {tool}. Use one of {', '.join(self.described)}."
        if not text:
            return f"{tool} needs the argument {self.described[tool][0]}."
        with crossing("tool"):
            return run(text)


class CorpusTools(Toolbox):
    """`search` shows the top k passages, `lookup` every matching sentence of all passages seen."""

    described: ClassVar[dict[str, tuple[str, str]]] = {
        "search": ("words", "find passages"),
        "lookup": ("name", "find a name in the passages found so far"),
    }

    @property
    def can_look_up(self) -> bool:
        """Whether anything was found yet."""
        return bool(self.trace.passages)

    def search(self, query: str) -> str:
        """Title and first words of each passage found."""
        found = self.trace.search(query, k=self.k)
        return "\n".join(_snippet(p, self.snippet_words) for p in found) or "Nothing found."

    def lookup(self, text: str) -> str:
        """Matching sentences as "title [index] sentence", with indexes from 0 as in the corpus.

        Where nothing was found yet, this searches.
        """
        if not self.trace.passages:  # small models look up first, again and again
            self.trace.count("lookup_as_search")
            return self.search(text)
        lines = [
            f"{passage.title} [{index}] {sentence}"
            for passage in self.trace.passages
            for index, sentence in matching(passage, text)
        ]
        return "\n".join(lines) or "No sentence has this text."


class PageTools(Toolbox):
    """ReAct's own: `search` opens the page of that title, `lookup` walks it one hit at a time."""

    described: ClassVar[dict[str, tuple[str, str]]] = {
        "search": ("entity", "open the page of this name"),
        "lookup": ("text", "show the next sentence with this text on the open page"),
    }

    def __init__(self, trace: Trace, *, k: int, snippet_words: int) -> None:
        super().__init__(trace, k=k, snippet_words=snippet_words)
        self._page: Passage | None = None
        self._sought, self._cursor = "", 0

    @property
    def can_look_up(self) -> bool:
        """Whether a page is open."""
        return self._page is not None

    def search(self, query: str) -> str:
        """The first sentences of the page called `query`, or similar titles if there is none."""
        found = self.trace.search(query, k=self.k)
        page = next((p for p in found if _same_title(p.title, query)), None)
        if page is None:
            titles = list(dict.fromkeys(p.title for p in found))[:SIMILAR_TITLES]
            return f"Could not find {query}. Similar: {', '.join(titles) or 'none'}."
        self._page, self._sought, self._cursor = page, "", 0
        return " ".join(sentences_of(page)[:PAGE_SENTENCES])

    def lookup(self, text: str) -> str:
        """The next hit on the open page as "(Result i / n) sentence"; a new text starts anew."""
        if self._page is None:
            return "No page is open. Use search first."
        if text.lower() != self._sought:
            self._sought, self._cursor = text.lower(), 0
        hits = matching(self._page, text)
        if self._cursor >= len(hits):
            return "No more results."
        self._cursor += 1
        return f"(Result {self._cursor} / {len(hits)}) {hits[self._cursor - 1][1]}"


def matching(passage: Passage, text: str) -> list[tuple[int, str]]:
    """Index and sentence of each sentence of `passage` that contains `text`, in any case."""
    sentences: Sequence[str] = sentences_of(passage)
    return [(i, s.strip()) for i, s in enumerate(sentences) if text.lower() in s.lower()]


def _snippet(passage: Passage, words: int) -> str:
    parts = str(passage).split()
    return " ".join(parts[:words]) + (" ..." if len(parts) > words else "")


def _same_title(title: str, entity: str) -> bool:
    # "Paris (film)" is reached by "Paris" as well, as Wikipedia's search would.
    wanted = normalise_answer(entity)
    return bool(wanted) and wanted in (
        normalise_answer(title),
        normalise_answer(title.split(" (")[0]),
    )
