"""Normalisation of answers before they are compared (SQuAD v1.1, Rajpurkar et al. 2016).

HotpotQA, 2WikiMultiHopQA and MuSiQue use the same steps in the same order.
"""

import re
import string
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE_WORDS = ("a", "an", "the")
_ARTICLES = re.compile(rf"\b(?:{'|'.join(_ARTICLE_WORDS)})\b")
_PIECES = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]+|_")


T = TypeVar("T")


class Memo(dict[str, T], Generic[T]):
    """What `function` gives for each word, worked out once; faster by `[]` than any call."""

    def __init__(self, function: Callable[[str], T], *, limit: int = 200_000) -> None:
        super().__init__()
        self.function, self.limit = function, limit

    def __missing__(self, word: str) -> T:
        if len(self) >= self.limit:
            self.clear()
        value = self[word] = self.function(word)
        return value


@lru_cache(maxsize=32_768)  # many metrics ask for the same answers
def normalise_answer(text: str) -> str:
    """`text` in lower case, without ASCII punctuation, articles and spare blanks.

    Punctuation goes before articles, so "a-b" becomes "ab"; other dashes and quotation marks stay,
    and composed and decomposed letters stay different, as in the official scripts.
    """
    bare = strip_punctuation(text.lower())
    return " ".join(_ARTICLES.sub(" ", bare).split())


def is_blank(text: str) -> bool:
    """Whether nothing is left of `text` once it is normalised."""
    return all(word in _ARTICLE_WORDS for word in strip_punctuation(text.lower()).split())


def strip_punctuation(text: str) -> str:
    """`text` without ASCII punctuation; words on either side of a hyphen join."""
    return text.translate(_NO_PUNCTUATION)


def tokens(text: str) -> list[str]:
    """The blank-separated words of the normalised `text`, in order."""
    return normalise_answer(text).split()


def approx_tokens(text: str) -> int:
    """About how many tokens GPT models make of `text`, the same on every machine.

    Their tokeniser's tables must be downloaded, so pieces are counted instead: seven letters, three
    digits or a run of punctuation each. Against cl100k_base the totals over English Wikipedia and
    medical text are 4 % off at the most, over lower-cased chunks 8 % low (see docs/metrics.md).
    """
    return sum(map(_PIECE_COUNTS.__getitem__, text.split()))


def _count_pieces(word: str) -> int:
    if word.isascii():
        bare = word.rstrip(string.punctuation)
        if bare.isalpha() and len(word) - len(bare) <= 1:  # most words: letters, and one mark
            return 1 + (len(bare) - 1) // 7 + len(word) - len(bare)
    return sum(
        1 + (len(piece) - 1) // 7 if piece.isascii() else -(-len(piece.encode()) // 3)
        for piece in _PIECES.findall(word)
    )


_PIECE_COUNTS = Memo(_count_pieces)
