"""Which passage a gold title means."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import regex

from ragbench.passages import Corpus, Passage, PassageSource
from ragbench.words import fold

_BRACKET = re.compile(r"\s*\([^()]*\)\s*$")
_WORD = regex.compile(r"\w{3,}")
_QUOTES = "\"'`\u201c\u201d\u2018\u2019 "

Named = Mapping[str, Sequence[Passage]]


class _Forms(NamedTuple):
    """Passages by the title without its bracket, by what stands before a comma, by each word."""

    bare: Named
    ranked: Named
    words: Named


class Titles:
    """Passages by title: exact, without regard to case, and by the name without its bracket."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._corpus = Corpus(passages)

    def get(self, title: str) -> Passage | None:
        """Returns the passage with this title, else the only one with it in another case."""
        candidates = [self._corpus[place] for place in self._corpus.all_titled(title)]
        return next((p for p in candidates if p.title == title), None) or _only(candidates)

    def match(
        self, subject: str, obj: str, question: str, *, taken: Collection[str] = ()
    ) -> Passage | None:
        """Returns the passage that states a fact about `subject` whose value is `obj`.

        Where no title is the subject, titles that differ by a bracket or quotation marks are
        candidates; the one that the question names whole is taken, else the only one whose text
        holds the value. Then, of the passages whose text holds the value, the only one that has a
        word of the subject in its title and its title in the question, and the only one whose title
        is the subject and a rank after a comma. None where that leaves a doubt. `taken` are pids
        of passages about other subjects. Of passages on disk only the title itself is looked at.
        """
        if (exact := self.get(subject)) is not None:
            return exact
        bare = _bare(subject)
        folded_question = fold(question)
        forms = self._forms
        candidates = forms.bare.get(bare, ())
        named = []
        for p in candidates:
            if "(" in p.title and fold(p.title) in folded_question:
                named.append(p)
        if len(named) == 1:
            return named[0]
        by_pid = {}
        for word in _WORD.findall(bare):
            for p in forms.words.get(word, ()):
                by_pid[p.pid] = p
        groups = (
            candidates,
            [p for p in by_pid.values() if _names(folded_question, p.title) and p.pid not in taken],
            [p for p in forms.ranked.get(bare, ()) if p.pid not in taken],
        )
        for group in groups:
            stating = _only([p for p in group if fold(obj) in fold(p.text)])
            if stating is not None:
                return stating
        return None

    @cached_property
    def _forms(self) -> _Forms:
        pairs = []
        if not isinstance(self._corpus.passages, PassageSource):
            pairs = [(_bare(p.title), p) for p in self._corpus]
        return _Forms(
            _grouped(pairs),
            _grouped((bare.split(", ")[0], p) for bare, p in pairs if ", " in bare),
            _grouped((word, p) for bare, p in pairs for word in set(_WORD.findall(bare))),
        )


def _grouped(pairs: Iterable[tuple[str, Passage]]) -> Named:
    groups: dict[str, list[Passage]] = defaultdict(list)
    for name, passage in pairs:
        groups[name].append(passage)
    return groups


def _bare(title: str) -> str:
    return fold(_BRACKET.sub("", title.strip(_QUOTES)).strip(_QUOTES))


def _only(passages: Sequence[Passage]) -> Passage | None:
    if len(passages) == 1:
        return passages[0]
    return None


def _names(folded_question: str, title: str) -> bool:
    return regex.search(rf"(?<!\w){regex.escape(fold(title))}(?!\w)", folded_question) is not None
