"""Tools over one corpus for programs whose model chooses what to do next.

A toolbox lives for one question. Each public tool takes one text and returns the observation that
the model sees; none raises but for a spent budget.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ragbench.metrics import normalise_answer, tokens
from ragbench.programs.core import (
    Seen,
    Toolbox,
    ToolInfo,
    ToolUse,
    Trace,
    argument_text,
    sentences_of,
)
from ragbench.retrievers import Passage

#: Sentences of a page that a search shows, and titles it offers where no page fits (ReAct).
PAGE_SENTENCES = 5
SIMILAR_TITLES = 5
NOTHING_FOUND, NO_SENTENCE = "Nothing found.", "No sentence has this text."
NO_PAGE, NO_MORE = "No page is open. Use search first.", "No more results."
_EMPTY = frozenset([NOTHING_FOUND, NO_SENTENCE, NO_PAGE, NO_MORE])
_LITTLE_MORE = 1.25
#: Share of the words of a cut passage that the sentences after the cut may take besides.
_AFTER_CUT = 0.5
_QUESTION_WORDS = frozenset(
    ["who", "whom", "whose", "what", "when", "where", "which", "why", "how", "did", "does"]
)


class ReActTools(Toolbox):
    """The tools `search` and `lookup` of one question; `lookup=False` leaves the second out."""

    described: ClassVar[Mapping[str, ToolInfo]]

    def __init__(self, trace: Trace, *, k: int, snippet_words: int, lookup: bool = True) -> None:
        tools = dict(self.described)
        if not lookup:
            del tools["lookup"]
        super().__init__(trace, tools)
        self.k, self.snippet_words = k, snippet_words

    @property
    def offered(self) -> Mapping[str, ToolInfo]:
        """The tools; `lookup` once there is something to look in."""
        hidden = set() if self.can_look_up else {"lookup"}
        return {name: tool for name, tool in self.tools.items() if name not in hidden}

    @property
    def shown_nothing(self) -> bool:
        """Whether no passage was found so far."""
        return not self.trace.passages

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

    def question_search(self) -> ToolUse:
        """A search for the question."""
        return ToolUse("search", {self.described["search"].argument: self.trace.question})

    def run(self, use: ToolUse) -> Seen:
        """What the tool shows, and the passages found by it."""
        text = argument_text(use.arguments, self.described[use.tool].argument)
        if use.tool == "search" and text in self.described["search"]:
            self.trace.count("copied_tool")
            text = self.trace.question
        before = len(self.trace.searches)
        shown = self.search(text) if use.tool == "search" else self.lookup(text)
        hits = [hit for search in self.trace.searches[before:] for hit in search.hits]
        return Seen(shown, tuple(pid for pid, _ in hits), empty=shown in _EMPTY)


class CorpusTools(ReActTools):
    """`search` shows the top k passages, `lookup` every matching sentence of all passages seen."""

    described: ClassVar[Mapping[str, ToolInfo]] = {
        "search": ToolInfo("words", "find passages"),
        "lookup": ToolInfo("name", "find a name in the passages found so far"),
    }

    @property
    def can_look_up(self) -> bool:
        """Whether anything was found yet."""
        return bool(self.trace.passages)

    def search(self, query: str) -> str:
        """Title and first words of each passage found, and what else in it the query names."""
        found = self.trace.search(query, k=self.k)
        shown = [_snippet(passage, self.snippet_words, query) for passage in found]
        return "\n".join(shown) or NOTHING_FOUND

    def lookup(self, text: str) -> str:
        """Matching sentences as "title [index] sentence", with indexes from 0 as in the corpus.

        A passage whose title has the text matches with its first sentence, in which the name often
        stands in another form. Where nothing was found yet, this searches.
        """
        if not self.trace.passages:  # small models look up first, again and again
            self.trace.count("lookup_as_search")
            return self.search(text)
        lines = [
            f"{passage.title} [{index}] {sentence}"
            for passage in self.trace.passages
            for index, sentence in matching(passage, text, title_too=True)
        ]
        return "\n".join(lines) or NO_SENTENCE


class PageTools(ReActTools):
    """ReAct's own: `search` opens the page of that title, `lookup` walks it one hit at a time."""

    described: ClassVar[Mapping[str, ToolInfo]] = {
        "search": ToolInfo("entity", "open the page of this name"),
        "lookup": ToolInfo("text", "show the next sentence with this text on the open page"),
    }

    def __init__(self, trace: Trace, *, k: int, snippet_words: int, lookup: bool = True) -> None:
        super().__init__(trace, k=k, snippet_words=snippet_words, lookup=lookup)
        self._page: Passage | None = None
        self._sought, self._cursor = "", 0

    @property
    def can_look_up(self) -> bool:
        """Whether a page is open."""
        return self._page is not None

    def search(self, query: str) -> str:
        """The first sentences of the page called `query`, or similar titles if there is none.

        A page of exactly that title, whatever its case, opens wherever it ranks. Otherwise it is
        one of the pages found, by its title but for marks and articles, or by that without the
        bracket at its end ("Paris (film)").
        """
        page = self._titled(query)
        passages = [] if page else self.trace.search(query, k=self.k)
        same = (
            p for name in (str, _without_bracket) for p in passages if _same(name(p.title), query)
        )
        page = page or next(same, None)
        if page is None:
            titles = list(dict.fromkeys(p.title for p in passages))[:SIMILAR_TITLES]
            return f"Could not find {query}. Similar: {', '.join(titles) or 'none'}."
        self._page, self._sought, self._cursor = page, "", 0
        return " ".join(sentences_of(page)[:PAGE_SENTENCES])

    def _titled(self, query: str) -> Passage | None:
        """The page whose title is `query`, noted as found by a search."""
        corpus = self.trace.retriever.corpus
        place = corpus.titled(query)
        return (
            None if place is None else self.trace.search_by(lambda: [corpus[place]], query, k=1)[0]
        )

    def lookup(self, text: str) -> str:
        """The next hit on the open page as "(Result i / n) sentence"; a new text starts anew."""
        if self._page is None:
            return NO_PAGE
        if text != self._sought:
            self._sought, self._cursor = text, 0
        hits = matching(self._page, text)
        if self._cursor >= len(hits):
            return NO_MORE
        self._cursor += 1
        return f"(Result {self._cursor} / {len(hits)}) {hits[self._cursor - 1][1]}"


def matching(passage: Passage, text: str, *, title_too: bool = False) -> list[tuple[int, str]]:
    """Index and sentence of each sentence of `passage` that contains `text`, in any case.

    With `title_too`, the first one also where the title contains it.
    """
    sentences: Sequence[str] = sentences_of(passage)
    sought = text.lower()
    first = title_too and sought in passage.title.lower()
    return [
        (i, s.strip()) for i, s in enumerate(sentences) if sought in s.lower() or (first and i == 0)
    ]


def _snippet(passage: Passage, words: int, query: str) -> str:
    """Title and first words; all of a passage that is not much longer than `words`.

    After the cut follow the sentences with words of `query` that the first words lack, those with
    the most first: the fact that was asked for may stand at the end.
    """
    parts = str(passage).split()
    if len(parts) <= words * _LITTLE_MORE:
        return " ".join(parts)
    shown, rest = [" ".join(parts[:words])], " ".join(parts[words:])
    missing = set(tokens(query)) - set(tokens(shown[0])) - _QUESTION_WORDS
    room = int(words * _AFTER_CUT)
    after = {s: set(tokens(s)) for s in sentences_of(Passage(passage.pid, "", rest))}
    while True:
        fitting = [sentence for sentence in after if len(sentence.split()) <= room]
        best = max(fitting, key=lambda sentence: len(missing & after[sentence]), default="")
        if not best or not missing & after[best]:
            return " ... ".join([*shown, ""]).rstrip()
        missing -= after[best]
        room -= len(best.split())
        shown.append(best.strip())


def _without_bracket(title: str) -> str:
    # "Paris (film)" is reached by "Paris" as well, as Wikipedia's search would.
    return title.split(" (")[0]


def _same(title: str, entity: str) -> bool:
    return bool(normalise_answer(entity)) and normalise_answer(title) == normalise_answer(entity)
