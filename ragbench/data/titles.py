"""Resolve the names of gold passages: ids and titles."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import regex

from ragbench.data.answers import decoded
from ragbench.data.passages import read_corpus
from ragbench.passages import Corpus, Passage, PassageSource
from ragbench.settings import DataSettings
from ragbench.text_normalization import fold

_BRACKET = re.compile(r"\s*\([^()]*\)\s*$")
_WORD = regex.compile(r"\w{3,}")
_QUOTES = "\"'`\u201c\u201d\u2018\u2019 "


def corpus_and_titles(
    spec: DataSettings, *, split_passages: Iterable[Passage] = ()
) -> tuple[Sequence[Passage] | None, Titles | None]:
    """Return the passages of the spec's corpus file and their titles. None without a file.

    Args:
        spec: Data settings.
        split_passages: Passages of known sentences, see `read_corpus`.
    """
    if spec.corpus_file is None:
        return None, None
    corpus = read_corpus(spec, split_passages=split_passages)
    return corpus, Titles(corpus)


class Titles:
    """Passages by title: exact, ignoring case, and by the name without its bracket."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._corpus = Corpus(passages)

    @property
    def positions(self) -> Mapping[str, int]:
        return self._corpus.positions

    def find(self, name: str) -> Passage | None:
        """Return the passage with this id or title."""
        if name in self.positions:
            found: Passage = self._corpus[self.positions[name]]
            return found
        return self.get(decoded(name))

    def get(self, title: str) -> Passage | None:
        """Return the passage with this title, else the only one that differs just in case."""
        candidates = [self._corpus[place] for place in self._corpus.all_titled(title)]
        return next((p for p in candidates if p.title == title), None) or _only(candidates)

    def match(
        self, subject: str, obj: str, question: str, *, taken: Collection[str] = ()
    ) -> Passage | None:
        """Find the passage that states a fact about a subject.

        The candidates, in order, until one remains:

        - The passage whose title is the subject.
        - Titles that differ by a bracket or quotation marks. The question must contain the whole
          title, or only one text contains the value.
        - Titles that share a word with the subject and are in the question, if only one text
          contains the value.
        - Titles that are the subject and a rank after a comma, if only one text contains the value.

        For passages on disk only the title itself is compared.

        Args:
            subject: Subject of the fact.
            obj: Value of the fact.
            question: Text of the question.
            taken: Ids of passages about other subjects, excluded from the last two steps.

        Returns:
            The passage, or None if the match is ambiguous.
        """
        if (exact := self.get(subject)) is not None:
            return exact
        bare = _bare(subject)
        folded_question = fold(question)
        candidates = self._keyed["title", bare]
        with_bracket = [p for p in candidates if "(" in p.title]
        named = _only([p for p in with_bracket if fold(p.title) in folded_question])
        if named is not None:
            return named
        in_question = {}
        for word in _WORD.findall(bare):
            for p in self._keyed["word", word]:
                if p.pid not in taken and _names(folded_question, p.title):
                    in_question[p.pid] = p
        ranked = [p for p in self._keyed["name before a comma", bare] if p.pid not in taken]
        for group in (candidates, in_question.values(), ranked):
            stating = _only([p for p in group if fold(obj) in fold(p.text)])
            if stating is not None:
                return stating
        return None

    @cached_property
    def _keyed(self) -> dict[tuple[str, str], list[Passage]]:
        """Passages by parts of their titles."""
        keyed: dict[tuple[str, str], list[Passage]] = defaultdict(list)
        if isinstance(self._corpus.passages, PassageSource):
            return keyed
        for passage in self._corpus:
            bare = _bare(passage.title)
            keyed["title", bare].append(passage)
            name, comma, _ = bare.partition(", ")
            if comma:
                keyed["name before a comma", name].append(passage)
            for word in set(_WORD.findall(bare)):
                keyed["word", word].append(passage)
        return keyed


def _bare(title: str) -> str:
    return fold(_BRACKET.sub("", title.strip(_QUOTES)).strip(_QUOTES))


def _only(passages: Sequence[Passage]) -> Passage | None:
    if len(passages) == 1:
        return passages[0]
    return None


def _names(folded_question: str, title: str) -> bool:
    return regex.search(rf"(?<!\w){regex.escape(fold(title))}(?!\w)", folded_question) is not None
