"""The claims of a program's thoughts and answer, which a judge holds against what was retrieved."""

import re
from collections.abc import Iterable

from ragbench.metrics.kinds import answer_kind
from ragbench.metrics.text import is_blank, normalise_answer
from ragbench.record import Record, ShownPassage

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\u201c]?[A-Z0-9])")
#: Actions whose thought says what to do, and not what is so.
_NO_CLAIMS = frozenset({"decompose"})


def sentences(text: str) -> list[str]:
    """The sentences of `text`, blank ones left out."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def claims_of_chain(record: Record) -> list[str]:
    """The sentences of a program's thoughts; empty where it wrote down none.

    A single word, such as the move that a planner chose, claims nothing, nor does the instruction
    by which a question is taken apart.
    """
    steps = (step for step in record.steps if step.action not in _NO_CLAIMS)
    lines = (line for step in steps for line in sentences(step.thought))
    return [line for line in lines if len(line.split()) > 1 and not is_blank(line)]


def claims_of_answer(record: Record) -> list[str]:
    """The sentences of an answer; none of a yes or no, which claims nothing to be looked up."""
    answer = record.answer_text
    if answer_kind(answer) == "yes_no":
        return []
    return [line for line in sentences(answer) if not is_blank(line)]


def says_something(text: str) -> bool:
    """Whether `text` reads as a sentence: more than six words, or it ends like one."""
    return len(text.split()) > 6 or text.rstrip().endswith((".", "!", "?"))


def stands_in(words: str, passages: Iterable[ShownPassage]) -> bool:
    """Whether the normalised `words` stand whole in the title or the text of a passage."""
    inner = normalise_answer(words)
    texts = (text for passage in passages for text in (passage.title, passage.text))
    return bool(inner) and any(f" {inner} " in f" {normalise_answer(text)} " for text in texts)
