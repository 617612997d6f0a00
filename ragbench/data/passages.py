"""Paragraphs: one content, one passage, one stable pid."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

from ragbench.retrievers import Passage
from ragbench.retrievers.sentences import split_sentences


def content_pid(title: str, text: str) -> str:
    """A pid that depends on title and text alone: the title in plain letters and a hash."""
    digest = hashlib.sha256(f"{title}\x1f{text}".encode()).hexdigest()[:12]
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:40].strip("-")
    return f"{slug}-{digest}" if slug else digest


def from_sentences(title: str, sentences: Iterable[str], *, pid: str = "") -> Passage:
    """The passage of these sentences, stripped.

    A blank sentence keeps its place, since supporting facts count it, but adds nothing to the text.
    """
    kept = tuple(sentence.strip() for sentence in sentences)
    text = " ".join(sentence for sentence in kept if sentence)
    title = title.strip()
    return Passage(pid=pid or content_pid(title, text), title=title, text=text, sentences=kept)


def from_text(title: str, text: str, *, pid: str = "") -> Passage:
    """The passage of a text whose sentence boundaries are unknown."""
    return from_sentences(title, split_sentences(text), pid=pid)


class Pool:
    """Passages in the order first seen, each content once."""

    def __init__(self, passages: Iterable[Passage] = ()) -> None:
        self._places: dict[str, int] = {}
        self.passages: list[Passage] = []
        for passage in passages:
            self.add(passage)

    def add(self, passage: Passage) -> int:
        """The position of `passage`, which is added if its pid is new."""
        place = self._places.setdefault(passage.pid, len(self.passages))
        if place == len(self.passages):
            self.passages.append(passage)
        return place

    def add_all(self, passages: Sequence[Passage]) -> tuple[int, ...]:
        """The positions of `passages`, each once."""
        return tuple(dict.fromkeys(self.add(passage) for passage in passages))

    def __contains__(self, pid: str) -> bool:
        return pid in self._places

    def __getitem__(self, pid: str) -> Passage:
        return self.passages[self._places[pid]]
