"""How text becomes the words that the sparse retrievers count."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

from ragbench.errors import ConfigError
from ragbench.knobs import Knobs
from ragbench.retrievers.base import Passage

_WORD = re.compile(r"\w+")


class TextSettings(Knobs):
    """How a passage and a query are cut into words."""

    tokenizer: Literal["words", "spaces"] = Field(
        "words", description="runs of word characters, or whatever stands between blanks"
    )
    stopwords: Literal["en", "none"] = Field("en", description="words left out")
    stemmer: Literal["none", "english"] = Field(
        "none", description="Snowball stemmer; needs the package PyStemmer"
    )
    title_weight: int = Field(
        1, ge=0, le=20, description="how many times the words of the title count"
    )


class Words:
    """Cuts text into lower-case words by `settings`."""

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings
        self._stop = _stopwords(settings.stopwords)
        self._stem = _stemmer(settings.stemmer)

    def __call__(self, text: str) -> list[str]:
        """The words of `text` in order, repeats kept."""
        lower = text.lower()
        found = _WORD.findall(lower) if self._settings.tokenizer == "words" else lower.split()
        kept = [word for word in found if word not in self._stop]
        return self._stem(kept) if self._stem else kept

    def of_passage(self, passage: Passage) -> list[str]:
        """The words of the title, as often as they weigh, and of the text."""
        title = self(passage.title) * self._settings.title_weight if passage.title else []
        return title + self(passage.text)


@lru_cache
def _stopwords(name: str) -> frozenset[str]:
    if name == "none":
        return frozenset()
    from bm25s.stopwords import STOPWORDS_EN

    return frozenset(STOPWORDS_EN)


def _stemmer(name: str) -> Callable[[list[str]], list[str]] | None:
    if name == "none":
        return None
    try:
        import Stemmer  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigError(
            f"stemmer={name} needs PyStemmer; run pip install PyStemmer or set stemmer=none"
        ) from None
    stemmer: Any = Stemmer.Stemmer(name)

    def stem(words: list[str]) -> list[str]:
        stems: list[str] = stemmer.stemWords(words)
        return stems

    return stem
