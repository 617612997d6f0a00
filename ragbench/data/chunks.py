"""The chunk view: fixed-length pieces of a paragraph source, and what each of them holds."""

from __future__ import annotations

import bisect
import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragbench.retrievers import Passage
from ragbench.tokens import estimate_tokens

#: A sentence with fewer letters than this is not looked for by itself: it could occur anywhere.
_MIN_LETTERS = 20


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


def make_chunk(index: int, text: str, sentences: tuple[str, ...] = ()) -> Passage:
    """A chunk without a title; its pid begins with its place, so that neighbours can be found."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Passage(pid=f"{index:06d}-{digest}", title="", text=text, sentences=sentences)


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
        pids: list[str | None] = []
        for index, span in enumerate(spans):
            if span is None:
                pids.append(None)
                continue
            pid = chunks[bisect.bisect_right(starts, (span[0] + span[1]) // 2) - 1].pid
            aligned[pid].append((paragraph.title, index))
            pids.append(pid)
        holders[paragraph.pid] = tuple(pids)
    return Chunked(tuple(chunks), {pid: tuple(a) for pid, a in aligned.items()}, holders)


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


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in plain if character.isalnum())


def _find(text: str, sentences: list[str], hint: int) -> tuple[list[tuple[int, int] | None], int]:
    """The span of each sentence in `text`, and where to look for the next paragraph."""
    whole = "".join(sentences)
    start = _locate(text, whole, hint)
    if start >= 0:
        spans: list[tuple[int, int] | None] = []
        place = start
        for sentence in sentences:
            spans.append((place, place + len(sentence)))
            place += len(sentence)
        return spans, place
    spans = []
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
