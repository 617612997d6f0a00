"""Which passage a gold title means."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from ragbench.data.passage_file import PassageFile
from ragbench.retrievers import Passage

_BRACKET = re.compile(r"\s*\([^()]*\)\s*$")
_WORD = re.compile(r"\w{3,}")
_QUOTES = "\"'`\u201c\u201d\u2018\u2019 "


class Titles:
    """Passages by title: exact, without regard to case, and by the name without its bracket."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._exact: dict[str, Passage] = {}
        self._folded: dict[str, list[Passage]] = defaultdict(list)
        self._bare: dict[str, list[Passage]] = defaultdict(list)
        self._ranked: dict[str, list[Passage]] = defaultdict(list)
        self._words: dict[str, list[Passage]] = defaultdict(list)
        for passage in passages:
            self._exact.setdefault(passage.title, passage)
            self._folded[passage.title.casefold()].append(passage)
            bare = _bare(passage.title)
            self._bare[bare].append(passage)
            if ", " in bare:
                self._ranked[bare.split(", ")[0]].append(passage)
            for word in set(_WORD.findall(bare)):
                self._words[word].append(passage)

    def get(self, title: str) -> Passage | None:
        """The passage with this title, else the only one with it in another case."""
        return self._exact.get(title) or _only(self._folded.get(title.casefold(), ()))

    def match(
        self, subject: str, obj: str, question: str, *, taken: Collection[str] = ()
    ) -> Passage | None:
        """The passage that states a fact about `subject` whose value is `obj`.

        Where no title is the subject, titles that differ by a bracket or quotation marks are
        candidates; the one that the question names whole is taken, else the only one whose text
        holds the value. Then, of the passages whose text holds the value, the only one that has a
        word of the subject in its title and its title in the question, and the only one whose title
        is the subject and a rank after a comma. None where that leaves a doubt. `taken` are pids
        of passages about other subjects.
        """
        if (exact := self.get(subject)) is not None:
            return exact
        bare, asked = _bare(subject), question.casefold()
        candidates = self._bare.get(bare, ())
        named = [p for p in candidates if "(" in p.title and p.title.casefold() in asked]
        if len(named) == 1:
            return named[0]
        others = {p.pid: p for word in _WORD.findall(bare) for p in self._words.get(word, ())}
        asked_for = (p for p in others.values() if _names(asked, p.title))
        groups = (
            candidates,
            [p for p in asked_for if p.pid not in taken],
            [p for p in self._ranked.get(bare, ()) if p.pid not in taken],
        )
        stating = ([p for p in group if obj.casefold() in p.text.casefold()] for group in groups)
        return next(filter(None, map(_only, stating)), None)


class StoredTitles:
    """Passages on disk by title: exact, or without regard to case where only one has it."""

    def __init__(self, passages: PassageFile) -> None:
        self._passages = passages

    def get(self, title: str) -> Passage | None:
        """As `Titles.get`."""
        candidates = [self._passages[place] for place in self._passages.titled(title)]
        return next((p for p in candidates if p.title == title), None) or _only(candidates)

    def match(
        self, subject: str, obj: str, question: str, *, taken: Collection[str] = ()
    ) -> Passage | None:
        """The passage whose title is `subject`; no other title is looked at."""
        return self.get(subject)


def index_titles(passages: Sequence[Passage]) -> Titles | StoredTitles:
    """Access by title to the passages of a corpus."""
    return StoredTitles(passages) if isinstance(passages, PassageFile) else Titles(passages)


def _bare(title: str) -> str:
    return _BRACKET.sub("", title.strip(_QUOTES)).strip(_QUOTES).casefold()


def _only(passages: Sequence[Passage]) -> Passage | None:
    return passages[0] if len(passages) == 1 else None


def _names(asked: str, title: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(title.casefold())}(?!\w)", asked) is not None
