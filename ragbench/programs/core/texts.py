"""Sentences of a text, and whether a text answers at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragbench.data import question_key
from ragbench.metrics import is_refusal, tokens
from ragbench.retrievers import Passage
from ragbench.retrievers.sentences import split_sentences


def sentences_of(passage: Passage) -> Sequence[str]:
    """The sentences of a passage, split where it has no list of them."""
    return passage.sentences or split_sentences(passage.text)


def first_sentence(text: str) -> str:
    """The first sentence of `text`."""
    return next(iter(split_sentences(text)), "")


def is_answer(text: str) -> bool:
    """Whether `text` commits itself: not blank, nor a refusal to answer."""
    return bool(tokens(text)) and not is_refusal(text)


def distinct(texts: Iterable[str]) -> list[str]:
    """`texts` on one line each, without blanks and those that differ in marks or case alone."""
    unlike: dict[str, str] = {}
    for text in texts:
        unlike.setdefault(question_key(text), " ".join(text.split()))
    return [text for key, text in unlike.items() if key]
