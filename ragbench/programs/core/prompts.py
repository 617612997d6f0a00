"""Passages and other inputs as prompts show them, shortened if the LM rejected their length.

Only the longest inputs are shortened, all to one length, so that a short list next to a long one
stays complete. The question, the tools and the settings are never shortened.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import dspy

from ragbench.passages import Passage
from ragbench.programs.core.text import Passages, sentences_of
from ragbench.text_normalization import estimate_tokens, first_tokens

#: Inputs that grow with each turn. They lose their oldest part first, other inputs the last.
_GROWING = frozenset({"trajectory", "history", "thoughts"})
_WHOLE = frozenset({"question", "tools", "signature", "config"})
#: Minimum total size of shortened inputs, in characters. Below it, nothing is cut.
_LEAST = 200
_MARK = " ..."
#: Characters of a sentence, without whitespace, that identify it in a text.
_LEAST_MATCH = 24
_UNPRINTED = {ord(mark): None for mark in " \t\r\n\u00a0\"'\\\u2018\u2019\u201c\u201d"}


class Line(str):
    """A text of a prompt that shows the passage `pid`, whole or in part."""

    pid: str

    def __new__(cls, text: str, pid: str = "") -> Self:
        """Create a line. The pid is empty only during a copy."""
        line = super().__new__(cls, text)
        line.pid = pid
        return line


def render(passages: Passages, *, max_tokens: int) -> list[str]:
    """Render passages for a prompt, as lines "[n] title | text" with n from 1.

    The passage that crosses the limit is cut at a word, and later ones are omitted. The first one
    is always included, cut if needed.

    Args:
        passages: Passages in order.
        max_tokens: Maximum number of tokens of all lines, estimated.

    Returns:
        A `Line` for each included passage.
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
    """Render a single passage for a prompt, without a number.

    Args:
        passage: The passage.
        max_tokens: Maximum number of tokens, estimated. Longer text is cut.
    """
    return Line(first_tokens(str(passage), max_tokens), passage.pid)


def split_context(inputs: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Return the pids of passages in `inputs`, in order, and the other texts by input."""
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


def pids_in_context(inputs: Mapping[str, Any], passages: Passages) -> list[str]:
    """Return the pids of the passages that `inputs` contain, completely or in part.

    A `Line` carries the pid of its passage. Other text, such as the output of tools or code,
    contains a passage if it contains the beginning of one of its sentences.

    Args:
        inputs: Inputs of a call.
        passages: Passages to look for in plain text.
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
            elif isinstance(line, str) and len(line) >= _LEAST_MATCH:
                texts.append(line)
    if texts:
        printed = _squeezed(" ".join(texts))
        for passage in passages:
            if any(start in printed for start in _beginnings(passage)):
                pids.append(passage.pid)
    return pids


def _squeezed(text: str) -> str:
    """Remove whitespace, quotation marks and backslashes, which printing may change."""
    return text.replace("\\n", "").translate(_UNPRINTED)


@lru_cache(maxsize=20_000)
def _beginnings(passage: Passage) -> tuple[str, ...]:
    """Return the first characters of each sentence that is long enough to identify."""
    starts = []
    for sentence in sentences_of(passage):
        start = _squeezed(sentence)[:_LEAST_MATCH]
        if len(start) == _LEAST_MATCH:
            starts.append(start)
    return tuple(starts) or (_squeezed(passage.text),)


def halved(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `inputs` shortened to half their size, or None if too little is left to cut."""
    sizes = {}
    for name, value in inputs.items():
        if name not in _WHOLE:
            sizes[name] = _size(value)
    total = sum(sizes.values())
    room = total // 2
    if room < _LEAST:
        return None
    cap = max(sizes.values())  # maximum length of an input such that all fit `room`
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
    """Count the characters of a value that can be shortened. Other values count 0."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dspy.History):
        return sum(len(str(message)) for message in value.messages)
    if isinstance(value, list):
        return sum(map(_size, value))
    return 0


def _cut(value: Any, room: int, *, newest: bool = False) -> Any:
    """Shorten `value` to `room` characters. Keep its first parts, or its `newest` ones."""
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
