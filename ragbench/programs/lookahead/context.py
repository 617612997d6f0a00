"""What the answer's prompt shows: passages without near-duplicates, in shares by confidence.

Each passage has a number, by which it is cited; for the record it has a label as well: the look-up
that found it and its rank there, such as n1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ragbench.programs.core import jaccard, render
from ragbench.programs.lookahead.graph import LookedUp
from ragbench.retrievers import Passage
from ragbench.tokens import CHARACTERS_PER_TOKEN, estimate_tokens, first_tokens

Cut = Literal["middle", "end"]

#: A look-up of no confidence still has this weight, so that something of it is shown.
_LEAST_WEIGHT = 0.05
#: No passage is cut down to fewer tokens than this, unless it would be the only one.
_LEAST_TOKENS = 30
#: Of a passage cut in its middle, the part that is kept from its beginning.
_HEAD = 0.6


@dataclass(frozen=True)
class Evidence:
    """One passage as shown; its number is its place among the evidence, from 1."""

    label: str
    passage: Passage
    line: str


class Assembled(NamedTuple):
    """The evidence in the order shown, and how many passages were left out as duplicates."""

    evidence: list[Evidence]
    duplicates: int


def assemble(
    looked_up: Sequence[LookedUp], *, max_tokens: int, duplicate_at: float, cut: Cut
) -> Assembled:
    """The evidence of all look-ups in at most `max_tokens`.

    Each look-up has the share of its confidence; what it leaves goes to those after it. A passage
    with at least `duplicate_at` of its words in common with one shown before is left out.
    """
    chosen: list[Evidence] = []
    texts: dict[str, str] = {}
    duplicates, left = 0, max_tokens
    weights = [max(item.node.confidence, _LEAST_WEIGHT) for item in looked_up]
    for place, item in enumerate(looked_up):
        room = share = int(left * weights[place] / sum(weights[place:]))
        for rank, passage in enumerate(item.passages, start=1):
            if passage.pid in texts or any(
                jaccard(passage.text, text) >= duplicate_at for text in texts.values()
            ):
                duplicates += 1
                continue
            label = f"{item.node.id}.{rank}"
            line = f"[{len(chosen) + 1}] {passage}"
            size = estimate_tokens(line)
            if size > room:
                if room < _LEAST_TOKENS and chosen:
                    break
                line = _shortened(line, room, cut)
                size = room
            texts[passage.pid] = passage.text
            chosen.append(Evidence(label, passage, line))
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
    shown = zip(first.values(), lines, strict=False)  # those that did not fit have no line
    return Assembled([Evidence(label, passage, line) for (label, passage), line in shown], 0)


def _shortened(line: str, max_tokens: int, cut: Cut) -> str:
    if cut == "end":
        return first_tokens(line, max_tokens)
    room = max(max_tokens * CHARACTERS_PER_TOKEN - 5, 2)
    head = int(room * _HEAD)
    return line[:head].rsplit(" ", 1)[0] + " ... " + line[head - room :].split(" ", 1)[-1]
