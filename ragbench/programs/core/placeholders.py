"""Numbered placeholders: a later sub-question names the answer of an earlier one as {1}, {2}."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ragbench.programs.core.texts import is_answer

# Models also write {n1}, {answer 1} and #1.
_PLACEHOLDER = re.compile(r"\{\s*[A-Za-z_ ]*(\d+)\s*\}|(?<!\w)#(\d+)\b")


def answers_used(text: str) -> list[int]:
    """The numbers of the sub-questions whose answers `text` uses, in order."""
    return [int(one or other) for one, other in _PLACEHOLDER.findall(text)]


def with_answers(
    text: str, parts: Mapping[int, str], answers: Mapping[int, str], count: Callable[[str], None]
) -> str:
    """`text` with {n} replaced by the n-th of `answers`, or by the n-th of `parts` if it has none.

    A placeholder for itself or for no part is dropped and counted (`bad_placeholder`); one without
    an answer is counted too (`unfilled_placeholder`).
    """

    def fill(match: re.Match[str]) -> str:
        number = int(match[1] or match[2])
        if parts.get(number, text) == text:
            count("bad_placeholder")
            return ""
        if is_answer(answers.get(number, "")):
            return answers[number]
        count("unfilled_placeholder")
        return f"({_PLACEHOLDER.sub('', parts[number]).rstrip(' ?')})"

    return " ".join(_PLACEHOLDER.sub(fill, text).split())
