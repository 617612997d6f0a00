"""What a prompt shows: numbered passages, and inputs cut shorter where the LM refused them.

Of inputs that are too long the longest alone are cut, down to one length, so that a short list
beside a long one stays whole. The question, tools and settings are never cut.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import dspy

from ragbench.passages import Passage
from ragbench.programs.core.text import Passages, sentences_of
from ragbench.tokens import estimate_tokens, first_tokens

#: Inputs that grow as a question goes on: of these the oldest part goes first, of others the last.
_GROWING = frozenset({"trajectory", "history", "thoughts"})
_WHOLE = frozenset({"question", "tools", "signature", "config"})
#: Characters, of all inputs that may be cut, under which cutting is given up.
_LEAST = 200
_MARK = " ..."
#: Characters of a sentence, without whitespace, by which a text shows it.
_LEAST_SHOWN = 24
_UNPRINTED = {ord(mark): None for mark in " \t\r\n\u00a0\"'\\\u2018\u2019\u201c\u201d"}


class Line(str):
    """A text of a prompt that shows the passage `pid`, whole or in part."""

    pid: str

    def __new__(cls, text: str, pid: str = "") -> Self:
        """The line; without a pid only while it is copied."""
        line = super().__new__(cls, text)
        line.pid = pid
        return line


def render(passages: Passages, *, max_tokens: int) -> list[str]:
    """Passages as a prompt shows them, each a `Line` "[n] title | text", n from 1, in `max_tokens`.

    The passage that crosses the limit is cut at a word; later ones are left out. The first is
    always shown, cut if need be.
    """
    lines: list[str] = []
    room = max_tokens
    for number, passage in enumerate(passages, start=1):
        line = f"[{number}] {passage}"
        size = estimate_tokens(line)
        if size > room:
            if room >= 30 or not lines:
                lines.append(Line(first_tokens(line, room), passage.pid))
            break
        lines.append(Line(line, passage.pid))
        room -= size
    return lines


def render_one(passage: Passage, *, max_tokens: int) -> Line:
    """A single passage as a prompt shows it, without a number, in `max_tokens`."""
    return Line(first_tokens(str(passage), max_tokens), passage.pid)


def split_shown(inputs: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Pids of the passages that `inputs` show, in order, and by input the texts of no passage."""
    pids: list[str] = []
    notes: dict[str, list[str]] = {}
    for name, value in inputs.items():
        if name == "question" or not isinstance(value, str | list):
            continue
        if isinstance(value, str):
            lines = [value]
        else:
            lines = [v for v in value if isinstance(v, str)]
        for line in lines:
            if isinstance(line, Line):
                pids.append(line.pid)
        if plain := [line for line in lines if line and not isinstance(line, Line)]:
            notes[name] = plain
    return tuple(pids), notes


def shown_in(inputs: Mapping[str, Any], passages: Passages) -> list[str]:
    """Pids of the passages whose text stands in `inputs`, whole or in part.

    A `Line` says which passage it shows. Of any other text, such as what tools or code printed, the
    beginning of a sentence of one of `passages` shows it.
    """
    pids: list[str] = []
    texts: list[str] = []
    for name, value in inputs.items():
        if name in _WHOLE:
            continue
        if isinstance(value, dspy.History):
            texts.append(str(value.messages))
            continue
        for line in value if isinstance(value, list) else [value]:
            if isinstance(line, Line):
                pids.append(line.pid)
            elif isinstance(line, str) and len(line) >= _LEAST_SHOWN:
                texts.append(line)
    if texts:
        printed = _squeezed(" ".join(texts))
        for passage in passages:
            if any(start in printed for start in _beginnings(passage)):
                pids.append(passage.pid)
    return pids


def _squeezed(text: str) -> str:
    """`text` without whitespace, quotation marks and backslashes, as code may print it."""
    return text.replace("\\n", "").translate(_UNPRINTED)


@lru_cache(maxsize=20_000)
def _beginnings(passage: Passage) -> tuple[str, ...]:
    """The first characters of each sentence of `passage` that is long enough to tell it."""
    starts = []
    for sentence in sentences_of(passage):
        start = _squeezed(sentence)[:_LEAST_SHOWN]
        if len(start) == _LEAST_SHOWN:
            starts.append(start)
    return tuple(starts) or (_squeezed(passage.text),)


def halved(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """`inputs` cut to half, or None where there is nothing left to cut."""
    sizes = {}
    for name, value in inputs.items():
        if name not in _WHOLE:
            sizes[name] = _size(value)
    total = sum(sizes.values())
    room = total // 2
    if room < _LEAST:
        return None
    cap = max(sizes.values())  # the length such that the inputs, none longer than it, fit `room`
    for place, size in enumerate(sorted(sizes.values())):
        share = room // (len(sizes) - place)
        if size > share:
            cap = share
            break
        room -= size
    shorter = dict(inputs)
    for name, size in sizes.items():
        if size > cap:
            shorter[name] = _cut(inputs[name], cap, newest=name in _GROWING)
    if sum(_size(shorter[name]) for name in sizes) < total:
        return shorter
    return None


def _size(value: Any) -> int:
    """Characters of what can be cut; 0 for anything else."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dspy.History):
        return sum(len(str(message)) for message in value.messages)
    if isinstance(value, list):
        return sum(map(_size, value))
    return 0


def _cut(value: Any, room: int, *, newest: bool = False) -> Any:
    """`value` in `room` characters: its first parts, or its `newest`; one at least, cut itself."""
    if isinstance(value, dspy.History):
        return dspy.History(messages=_cut(value.messages, room, newest=True))
    if isinstance(value, list):
        shortened: list[Any] = []
        for item in reversed(value) if newest else value:
            if isinstance(item, dict):
                size = len(str(item))
            else:
                size = _size(item)
            if size > room:
                shortened = shortened or [_cut(item, room)]
                break
            shortened.append(item)
            room -= size
        if newest:
            return shortened[::-1]
        return shortened
    if not isinstance(value, str):
        return value
    length = max(room - len(_MARK), 0)
    if newest:
        cut = "... " + value[len(value) - length :].split(" ", 1)[-1]
    else:
        cut = value[:length].rsplit(" ", 1)[0] + _MARK
    if isinstance(value, Line):
        return Line(cut, value.pid)
    return cut
