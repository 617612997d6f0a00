"""What the answer's prompt shows: passages without near-duplicates, in shares by confidence.

Each passage has a label, by which it is cited: the look-up that found it and its rank there, such
as n1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragbench.programs.core import Line, jaccard, render
from ragbench.programs.lookahead.graph import LookedUp
from ragbench.retrievers import Passage
from ragbench.tokens import CHARACTERS_PER_TOKEN, estimate_tokens

#: A look-up of no confidence still has this weight, so that something of it is shown.
_LEAST_WEIGHT = 0.05
#: No passage is cut down to fewer tokens than this, unless it would be the only one.
_LEAST_TOKENS = 30
#: Of a passage that is too long, which is cut in its middle, the part kept from its beginning.
_HEAD = 0.6


@dataclass(frozen=True)
class Evidence:
    """One passage as shown."""

    label: str
    passage: Passage
    line: Line


class Assembled(NamedTuple):
    """The evidence in the order shown, and how many passages were left out as duplicates."""

    evidence: list[Evidence]
    duplicates: int


def assemble(looked_up: Sequence[LookedUp], *, max_tokens: int, duplicate_at: float) -> Assembled:
    """The evidence of all look-ups in at most `max_tokens`.

    Each look-up has the share of its confidence; what it leaves goes to those after it. A passage
    with at least `duplicate_at` of its words in common with one shown before is left out.
    """
    chosen: list[Evidence] = []
    duplicates, left = 0, max_tokens
    weights = [max(item.node.confidence, _LEAST_WEIGHT) for item in looked_up]
    for place, item in enumerate(looked_up):
        room = share = int(left * weights[place] / sum(weights[place:]))
        for rank, passage in enumerate(item.passages, start=1):
            if any(
                passage.pid == shown.passage.pid
                or jaccard(passage.text, shown.passage.text) >= duplicate_at
                for shown in chosen
            ):
                duplicates += 1
                continue
            label = f"{item.node.id}.{rank}"
            line = f"[{label}] {passage}"
            size = estimate_tokens(line)
            if size > room:
                if room < _LEAST_TOKENS and chosen:
                    break
                line, size = _without_middle(line, room), room
            chosen.append(Evidence(label, passage, Line(line, passage.pid)))
            room -= size
        left -= share - room
    return Assembled(chosen, duplicates)


def in_order(looked_up: Sequence[LookedUp], *, max_tokens: int) -> Assembled:
    """The evidence in the order found, each passage once, as far as it fits: nothing assembled."""
    first: dict[str, tuple[str, Passage]] = {}
    for item in looked_up:
        for rank, passage in enumerate(item.passages, start=1):
            first.setdefault(passage.pid, (f"{item.node.id}.{rank}", passage))
    lines = render([passage for _, passage in first.values()], max_tokens=max_tokens)
    evidence = [
        Evidence(label, passage, Line(f"[{label}] {line.partition('] ')[2]}", passage.pid))
        for (label, passage), line in zip(first.values(), lines, strict=False)  # what fits
    ]
    return Assembled(evidence, 0)


def _without_middle(line: str, max_tokens: int) -> str:
    room = max(max_tokens * CHARACTERS_PER_TOKEN - 5, 2)
    head = int(room * _HEAD)
    return line[:head].rsplit(" ", 1)[0] + " ... " + line[head - room :].split(" ", 1)[-1]
