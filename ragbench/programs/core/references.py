"""What a call was shown, for the record: passages by their pids, and other texts as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.retrievers import Passage

# "[1] ", and a plan's "[n1.1] " after it.
_LABELS = re.compile(r"^\[\d+\] (?:\[\S+\] )?")


def split_shown(
    inputs: Mapping[str, Any], passages: Sequence[Passage]
) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Pids of the `passages` that `inputs` show, in order, and by input the lines of no passage.

    The question is left out, and so is what is no text.
    """
    pids: list[str] = []
    others: dict[str, list[str]] = {}
    for name, value in inputs.items():
        if name == "question" or not isinstance(value, str | list):
            continue
        lines = [value] if isinstance(value, str) else [v for v in value if isinstance(v, str)]
        pairs = [(line, pid_of(line, passages)) for line in lines]
        pids += [pid for _, pid in pairs if pid]
        if rest := [line for line, pid in pairs if line and not pid]:
            others[name] = rest
    return tuple(pids), others


def pid_of(line: str, passages: Sequence[Passage]) -> str:
    """The pid of the passage that `line` of a prompt shows, whole or in parts; "" if of none."""
    shown = _LABELS.sub("", line)
    for passage in passages if shown else ():
        title = f"{passage.title} | " if passage.title else ""
        parts = shown.removeprefix(title).split("...")
        if shown.startswith(title) and all(part.strip() in passage.text for part in parts):
            return passage.pid
    return ""
