"""Sentences of a text, and whether a text answers at all."""

from __future__ import annotations

from collections.abc import Sequence

from ragbench.data import split_sentences
from ragbench.metrics import is_refusal, tokens
from ragbench.retrievers import Passage


def sentences_of(passage: Passage) -> Sequence[str]:
    """The sentences of a passage, split where it has no list of them."""
    return passage.sentences or split_sentences(passage.text)


def first_sentence(text: str) -> str:
    """The first sentence of `text`."""
    return next(iter(split_sentences(text)), "")


def is_answer(text: str) -> bool:
    """Whether `text` commits itself: not blank, nor a refusal to answer."""
    return bool(tokens(text)) and not is_refusal(text)
