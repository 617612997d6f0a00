"""Passages of a data set: paragraphs with a stable pid, and the chunks they are packed into."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from ragbench.retrievers import Corpus, Passage
from ragbench.retrievers.sentences import split_sentences
from ragbench.tokens import estimate_tokens


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
    """Passages in the order first seen, each pid once."""

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

    def is_other(self, passage: Passage) -> bool:
        """Whether another passage, of another text, has its pid; adds it where none has."""
        return self.passages[self.add(passage)].text != passage.text


def make_chunk(index: int, text: str, sentences: tuple[str, ...] = ()) -> Passage:
    """A chunk without a title; its pid begins with its place, so that neighbours can be found."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Passage(pid=f"{index:06d}-{digest}", title="", text=text, sentences=sentences)


def cut_chunks(
    paragraphs: Sequence[Passage], *, max_tokens: int
) -> tuple[Corpus, dict[str, list[str]]]:
    """The paragraphs, in order, packed into chunks of at most `max_tokens` estimated tokens.

    A paragraph is kept whole where it fits into one chunk, and cut between sentences where it does
    not; only a sentence that is longer than the limit makes a longer chunk. Titles are no part of
    a chunk's text. Given too is, by the pid of each paragraph, the chunk of each of its sentences.
    """
    passages: list[Passage] = []
    alignment: dict[str, tuple[tuple[str, int], ...]] = {}
    holders: dict[str, list[str]] = {paragraph.pid: [] for paragraph in paragraphs}
    for group in _groups(paragraphs, max_tokens):
        sentences = tuple(paragraph.sentences[i] for paragraph, i in group)
        chunk = make_chunk(len(passages), " ".join(s for s in sentences if s), sentences)
        passages.append(chunk)
        alignment[chunk.pid] = tuple((paragraph.title, i) for paragraph, i in group)
        for paragraph, _ in group:
            holders[paragraph.pid].append(chunk.pid)
    return Corpus(tuple(passages), view="chunk", alignment=alignment), holders


def _groups(paragraphs: Sequence[Passage], max_tokens: int) -> Iterator[list[tuple[Passage, int]]]:
    group: list[tuple[Passage, int]] = []
    size = 0
    for paragraph in paragraphs:
        costs = [estimate_tokens(f"{sentence} ") for sentence in paragraph.sentences]
        if group and size + sum(costs) > max_tokens:
            yield group
            group, size = [], 0
        for index, cost in enumerate(costs):
            if group and size + cost > max_tokens:
                yield group
                group, size = [], 0
            group.append((paragraph, index))
            size += cost
    if group:
        yield group
