"""The tools of ReAct over one corpus; the docstring of each is what the model is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dspy

from ragbench.metrics import normalise_answer
from ragbench.programs.core import Trace, sentences_of
from ragbench.programs.core.tools import Seen, Toolbox, ToolUse
from ragbench.retrievers import Passage

#: Sentences of a page that a search shows, and titles it offers where no page fits (ReAct).
PAGE_SENTENCES = 5
SIMILAR_TITLES = 5
NOTHING_FOUND, NO_SENTENCE = "Nothing found.", "No sentence has this text."
NO_PAGE, NO_MORE = "No page is open. Use search first.", "No more results."


class ReActTools(Toolbox):
    """What both forms share; `guard` offers lookup only once there is something to look in."""

    def __init__(self, trace: Trace, *, k: int, words: int, lookup: bool, guard: bool) -> None:
        super().__init__(trace, ("search", "lookup") if lookup else ("search",))
        self.k, self.words, self.guard = k, words, guard

    @property
    def can_look_up(self) -> bool:
        """Whether there is something to look in."""
        return bool(self.trace.passages)

    @property
    def offered(self) -> Mapping[str, dspy.Tool]:
        """The tools; with the guard, `lookup` once there is something to look in."""
        if self.guard and "lookup" in self.tools and not self.can_look_up:
            self.trace.count("hidden_tool")
            return {"search": self.tools["search"]}
        return self.tools

    def question_search(self) -> ToolUse:
        """A search for the question."""
        return ToolUse("search", {next(iter(self.tools["search"].args)): self.trace.question})


class CorpusTools(ReActTools):
    """`search` shows the top k passages, `lookup` every matching sentence of all passages seen."""

    def search(self, words: str) -> str | Seen:
        """Find passages."""
        found = self.trace.search(words, k=self.k)
        if not found:
            return Seen(NOTHING_FOUND, empty=True)
        return "\n".join(_first_words(passage, self.words) for passage in found)

    def lookup(self, name: str) -> str | Seen:
        """Find a name in the passages found so far."""
        lines = [
            f"{passage.title} [{index}] {sentence}"
            for passage in self.trace.passages
            for index, sentence in matching(passage, name, title_too=True)
        ]
        return "\n".join(lines) or Seen(NO_SENTENCE, empty=True)


class PageTools(ReActTools):
    """ReAct's own: `search` opens the page of that title, `lookup` walks it one hit at a time."""

    _page: Passage | None = None
    _sought, _cursor = "", 0

    @property
    def can_look_up(self) -> bool:
        """Whether a page is open."""
        return self._page is not None

    def search(self, entity: str) -> str:
        """Open the page of this name."""
        # A page of exactly that title, whatever its case, opens wherever it ranks. Otherwise it is
        # one of the pages found, by its title but for marks and articles, or by that without the
        # bracket at its end: Wikipedia's search reaches "Paris (film)" by "Paris" as well.
        corpus = self.trace.retriever.corpus
        place = corpus.titled(entity)
        page: Passage | None = None
        if place is not None:
            (page,) = self.trace.search_by(lambda: [corpus[place]], entity, k=1)
        else:
            passages = self.trace.search(entity, k=self.k)
            titles = [(p, title) for p in passages for title in (p.title, p.title.split(" (")[0])]
            titles.sort(key=lambda pair: pair[0].title != pair[1])  # whole titles first
            page = next((p for p, title in titles if _same(title, entity)), None)
            if page is None:
                similar = list(dict.fromkeys(p.title for p in passages))[:SIMILAR_TITLES]
                return f"Could not find {entity}. Similar: {', '.join(similar) or 'none'}."
        self._page, self._sought, self._cursor = page, "", 0
        return " ".join(sentences_of(page)[:PAGE_SENTENCES])

    def lookup(self, text: str) -> str | Seen:
        """Show the next sentence with this text on the open page."""
        if self._page is None:
            return Seen(NO_PAGE, empty=True)
        if text != self._sought:
            self._sought, self._cursor = text, 0
        hits = matching(self._page, text)
        if self._cursor >= len(hits):
            return Seen(NO_MORE, empty=True)
        self._cursor += 1
        return f"(Result {self._cursor} / {len(hits)}) {hits[self._cursor - 1][1]}"


def matching(passage: Passage, text: str, *, title_too: bool = False) -> list[tuple[int, str]]:
    """Index and sentence of each sentence of `passage` that contains `text`, in any case.

    With `title_too`, the first one also where the title contains it: the name often stands in
    another form there.
    """
    sentences: Sequence[str] = sentences_of(passage)
    sought = text.lower()
    first = title_too and sought in passage.title.lower()
    return [
        (i, s.strip()) for i, s in enumerate(sentences) if sought in s.lower() or (first and i == 0)
    ]


def _first_words(passage: Passage, words: int) -> str:
    parts = str(passage).split()
    return " ".join(parts[:words]) + (" ..." if len(parts) > words else "")


def _same(title: str, entity: str) -> bool:
    return bool(normalise_answer(entity)) and normalise_answer(title) == normalise_answer(entity)
