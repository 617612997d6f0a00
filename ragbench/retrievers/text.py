"""Tokenisation of passages and queries for the sparse retrievers."""

import re
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from ragbench.errors import needs_extra
from ragbench.knobs import Knobs
from ragbench.retrievers.base import Passage

_WORD = re.compile(r"\w+")
#: Lucene's English stop words.
_STOPWORDS = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is"),
        *("it", "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there"),
        *("these", "they", "this", "to", "was", "will", "with"),
    )
)


class TextSettings(Knobs):
    """Knobs of tokenisation."""

    stopwords: Literal["en", "none"] = Field("en", description="words left out")
    stemmer: Literal["none", "english"] = Field(
        "none", description="Snowball stemmer; needs the package PyStemmer"
    )
    title_weight: int = Field(
        1, ge=0, le=20, description="times that the words of the title are counted"
    )


class Words:
    """Cuts text into lower-case words by `settings`."""

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings
        self._stop = _STOPWORDS if settings.stopwords == "en" else frozenset[str]()
        self._stem = _stemmer(settings.stemmer)

    def __call__(self, text: str) -> list[str]:
        """The words of `text` in order, repeats kept."""
        kept = [word for word in _WORD.findall(text.lower()) if word not in self._stop]
        return self._stem(kept) if self._stem else kept

    def of_passage(self, passage: Passage) -> list[str]:
        """The words of the title, as often as they weigh, and of the text."""
        title = self(passage.title) * self._settings.title_weight if passage.title else []
        return title + self(passage.text)


def _stemmer(name: str) -> Callable[[list[str]], list[str]] | None:
    if name == "none":
        return None
    with needs_extra(f"stemmer={name}", "set stemmer=none"):
        import Stemmer  # type: ignore[import-not-found, unused-ignore]
    stemmer: Any = Stemmer.Stemmer(name)

    def stem(words: list[str]) -> list[str]:
        stems: list[str] = stemmer.stemWords(words)
        return stems

    return stem
