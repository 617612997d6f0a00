"""Misleading passages, made of passages that were found.

The four kinds are those that RAGShaper trains with (2026, arXiv:2601.08699). There an LM writes
them around the gold answer; these are made by rule, from the text of a passage and names of other
passages, so that they cost nothing, are the same in every run and know nothing of the answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ragbench.retrievers.base import Passage

Kind = Literal["look_alike", "false_shortcut", "split_evidence", "subjective"]
KINDS: tuple[Kind, ...] = ("look_alike", "false_shortcut", "split_evidence", "subjective")

#: A name: words with a capital, and the small words between them.
_NAME = re.compile(r"\b[A-Z][\w'-]*(?:\s+(?:of|de|the|van|von)?\s*[A-Z][\w'-]*)*")
_NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]*\d)")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")


def names_in(text: str) -> list[str]:
    """The names in `text`, in order, each once; the first word of a sentence may be among them."""
    return list(dict.fromkeys(_NAME.findall(text)))


def look_alike(passage: Passage, names: Sequence[str], chance: random.Random) -> Passage | None:
    """A namesake of what `passage` is about: other names and numbers; None where it has neither."""
    text = _altered(passage.text, keep=passage.title, names=names, chance=chance)
    if text == passage.text:
        return None
    title = f"{passage.title} (namesake)" if passage.title else ""
    return Passage(_pid("look_alike", passage), title, text)


def false_shortcut(
    passage: Passage, query: str, names: Sequence[str], chance: random.Random
) -> Passage | None:
    """A passage that answers `query` at once, and wrongly."""
    if not names:
        return None
    wrong = chance.choice(names)
    asked = query.strip().rstrip(" ?.")
    text = f"{asked}: {wrong}. No other source is needed, since {wrong} is what all of them name."
    return Passage(_pid("false_shortcut", passage), passage.title, text)


def split_evidence(passage: Passage) -> tuple[Passage, Passage] | None:
    """`passage` cut in two: its beginning, under its own pid, and the rest, without the title.

    None where the text is one sentence.
    """
    parts = passage.sentences or tuple(_END.split(passage.text))
    if len(parts) < 2:
        return None
    half = (len(parts) + 1) // 2
    first = replace(passage, text=" ".join(parts[:half]), sentences=parts[:half])
    return first, Passage(_pid("split_evidence", passage), "", " ".join(parts[half:]))


def subjective(passage: Passage, names: Sequence[str], chance: random.Random) -> Passage | None:
    """An opinion that contradicts the first sentence of `passage` that has a name or a number."""
    for sentence in passage.sentences or _END.split(passage.text):
        claim = _altered(sentence, keep=passage.title, names=names, chance=chance)
        if claim != sentence:
            text = f"As many people see it: {claim} Whoever looks into it is bound to agree."
            return Passage(_pid("subjective", passage), passage.title, text)
    return None


def _pid(kind: Kind, passage: Passage) -> str:
    return f"distractor-{kind}-{passage.pid}"


def _altered(text: str, *, keep: str, names: Sequence[str], chance: random.Random) -> str:
    """`text` with each name that is no part of `keep` replaced by another, and numbers shifted."""
    kept = set(keep.split())
    others: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        begins = match.start() == 0 or text[: match.start()].rstrip().endswith((".", "!", "?"))
        # A single word that begins a sentence is more often "The" than a name.
        if not names or not kept.isdisjoint(name.split()) or (begins and " " not in name):
            return name
        return others.setdefault(name, chance.choice(names))

    renamed = _NAME.sub(rename, text)
    return _NUMBER.sub(lambda m: str(int(m[0]) + chance.randint(1, 9)), renamed)
