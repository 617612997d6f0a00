"""Which passage a gold title means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ragbench.retrievers.base import Passage

_BRACKET = re.compile(r"\s*\([^()]*\)\s*$")
_QUOTES = "\"'`\u201c\u201d\u2018\u2019 "


class Titles:
    """Passages by title: exact, without regard to case, and by the name without its bracket."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._exact: dict[str, Passage] = {}
        self._folded: dict[str, list[Passage]] = defaultdict(list)
        self._bare: dict[str, list[Passage]] = defaultdict(list)
        for passage in passages:
            self._exact.setdefault(passage.title, passage)
            self._folded[passage.title.casefold()].append(passage)
            self._bare[_bare(passage.title)].append(passage)

    def get(self, title: str) -> Passage | None:
        """The passage with this title, else the only one with it in another case."""
        return self._exact.get(title) or _only(self._folded.get(title.casefold(), ()))

    def match(self, subject: str, obj: str, question: str) -> Passage | None:
        """The passage that states a fact about `subject` whose value is `obj`.

        Where no title is the subject, titles that differ by a bracket or quotation marks are
        candidates; the one that the question names whole is taken, else the only one whose text
        holds the value; None where that leaves a doubt.
        """
        found = self.get(subject)
        if found is not None:
            return found
        candidates = self._bare.get(_bare(subject), ())
        asked = question.casefold()
        named = [p for p in candidates if "(" in p.title and p.title.casefold() in asked]
        telling = [p for p in candidates if obj.casefold() in p.text.casefold()]
        return _only(named) or _only(telling)


def _bare(title: str) -> str:
    return _BRACKET.sub("", title.strip(_QUOTES)).strip(_QUOTES).casefold()


def _only(passages: Sequence[Passage]) -> Passage | None:
    return passages[0] if len(passages) == 1 else None
