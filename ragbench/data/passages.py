"""Passages of a data set: paragraphs with a stable pid, and the chunks they are packed into."""

import bisect
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragbench.retrievers import Passage
from ragbench.retrievers.sentences import split_sentences
from ragbench.tokens import estimate_tokens

#: A sentence with fewer letters than this is not looked for by itself: it could occur anywhere.
_MIN_LETTERS = 20


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


@dataclass(frozen=True)
class Chunked:
    """Chunks, with both directions of their alignment to the paragraphs they were made of.

    `alignment` maps a chunk's pid to the `(title, sentence index)` pairs it holds; `holders` a
    paragraph's pid to the chunk that holds each of its sentences, None where that is unknown.
    """

    passages: tuple[Passage, ...]
    alignment: Mapping[str, tuple[tuple[str, int], ...]]
    holders: Mapping[str, tuple[str | None, ...]]

    @property
    def coverage(self) -> float:
        """The share of sentences, in [0, 1], whose chunk is known; 1 where there are none."""
        places = [place for holders in self.holders.values() for place in holders]
        return sum(place is not None for place in places) / len(places) if places else 1.0

    def gold(self, paragraph: Passage, support: Sequence[tuple[str, int]]) -> set[str | None]:
        """The chunks a reader of the gold `paragraph` needs.

        Those of its supporting sentences, or, where none is named, of all its sentences; None is
        among them where one is unknown.
        """
        holders = self.holders.get(paragraph.pid, ())
        named = {i for title, i in support if title == paragraph.title and 0 <= i < len(holders)}
        return {holders[i] for i in named} or set(holders) or {None}


def make_chunk(index: int, text: str, sentences: tuple[str, ...] = ()) -> Passage:
    """A chunk without a title; its pid begins with its place, so that neighbours can be found."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Passage(pid=f"{index:06d}-{digest}", title="", text=text, sentences=sentences)


def cut_chunks(paragraphs: Sequence[Passage], *, max_tokens: int) -> Chunked:
    """The paragraphs, in order, packed into chunks of at most `max_tokens` estimated tokens.

    A paragraph is kept whole where it fits into one chunk, and cut between sentences where it does
    not; only a sentence that is longer than the limit makes a longer chunk. Titles are no part of
    a chunk's text.
    """
    passages: list[Passage] = []
    alignment: dict[str, tuple[tuple[str, int], ...]] = {}
    holders: dict[str, list[str | None]] = {p.pid: [None] * len(p.sentences) for p in paragraphs}
    for group in _groups(paragraphs, max_tokens):
        sentences = tuple(paragraph.sentences[i] for paragraph, i in group)
        chunk = make_chunk(len(passages), " ".join(s for s in sentences if s), sentences)
        passages.append(chunk)
        alignment[chunk.pid] = tuple((paragraph.title, i) for paragraph, i in group)
        for paragraph, i in group:
            holders[paragraph.pid][i] = chunk.pid
    return Chunked(tuple(passages), alignment, {pid: tuple(h) for pid, h in holders.items()})


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


def align_chunks(paragraphs: Sequence[Passage], chunks: Sequence[Passage]) -> Chunked:
    """Given chunks, aligned to the paragraphs by their letters and digits.

    Case, accents, punctuation and blanks are ignored, since chunk files have been through a
    tokeniser. A paragraph is found as a whole, else sentence by sentence; a sentence that runs over
    the end of a chunk belongs to the chunk with its larger part.
    """
    starts, parts, end = [], [], 0
    for chunk in chunks:
        starts.append(end)
        parts.append(_letters(chunk.text))
        end += len(parts[-1])
    text = "".join(parts)
    aligned: dict[str, list[tuple[str, int]]] = {chunk.pid: [] for chunk in chunks}
    holders: dict[str, tuple[str | None, ...]] = {}
    hint = 0
    for paragraph in paragraphs:
        spans, hint = _find(text, [_letters(s) for s in paragraph.sentences], hint)
        pids: list[str | None] = [None] * len(spans)
        for index, span in enumerate(spans):
            if span is not None:
                pid = chunks[bisect.bisect_right(starts, sum(span) // 2) - 1].pid
                aligned[pid].append((paragraph.title, index))
                pids[index] = pid
        holders[paragraph.pid] = tuple(pids)
    return Chunked(tuple(chunks), {pid: tuple(a) for pid, a in aligned.items()}, holders)


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in plain if character.isalnum())


def _find(text: str, sentences: list[str], hint: int) -> tuple[list[tuple[int, int] | None], int]:
    """The span of each sentence in `text`, and where to look for the next paragraph."""
    spans: list[tuple[int, int] | None] = []
    place = _locate(text, "".join(sentences), hint)
    if place >= 0:
        for sentence in sentences:
            spans.append((place, place + len(sentence)))
            place += len(sentence)
        return spans, place
    for sentence in sentences:
        place = _locate(text, sentence, hint) if len(sentence) >= _MIN_LETTERS else -1
        spans.append((place, place + len(sentence)) if place >= 0 else None)
        hint = place + len(sentence) if place >= 0 else hint
    return spans, hint


def _locate(text: str, part: str, hint: int) -> int:
    if not part:
        return -1
    # Chunks follow their corpus, so the next paragraph is nearly always near the last.
    near = text.find(part, hint, hint + len(part) + 5_000)
    return near if near >= 0 else text.find(part)
