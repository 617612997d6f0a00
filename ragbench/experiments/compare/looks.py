"""Verdicts at growing numbers of questions: when to look, what each look saw, when it is decided.

Looking again and again at a test made for one look claims differences that are none; the tests by
betting of `ragbench.metrics` may be looked at as often as one likes. Every look is kept in
`looks.jsonl`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ragbench.experiments.compare.design import Pair
from ragbench.experiments.records import RecordWriter, read_each, unseal
from ragbench.metrics import Comparison

LOOKS = "looks.jsonl"
#: Each look has this many times the questions of the one before.
_GROWTH = 1.5


@dataclass(frozen=True)
class Seen:
    """One contrast on one metric at a look; `p` holds whenever one stops."""

    a: str
    b: str
    metric: str
    difference: float
    p: float
    p_adjusted: float
    verdict: str


@dataclass(frozen=True)
class Look:
    """What was seen after `questions` of at most `most`; `votes` are those of the votes arms."""

    questions: int
    most: int
    decided: bool
    votes: tuple[float, float]
    seen: tuple[Seen, ...]


def schedule(first: int, most: int) -> list[int]:
    """The number of questions at each look: `first`, then half as many more each time."""
    looks = [min(first, most)]
    while looks[-1] < most:
        looks.append(min(most, math.ceil(looks[-1] * _GROWTH)))
    return looks


def seen(contrasts: Mapping[Pair, Mapping[str, Comparison]]) -> tuple[Seen, ...]:
    """The part of `contrasts` that a look keeps."""
    return tuple(
        Seen(a, b, name, c.difference, c.p, c.p_adjusted or c.p, c.verdict)
        for (a, b), by_metric in contrasts.items()
        for name, c in by_metric.items()
    )


def read_looks(folder: Path) -> list[Look]:
    """The looks that were kept in `folder`, in order; a damaged line is left out.

    Raises:
        RunError: the file cannot be read.
    """
    return [line.row for line in read_each(folder / LOOKS, _parse) if line.row is not None]


def _parse(line: bytes) -> Look:
    return TypeAdapter(Look).validate_json(unseal(line))


def keep_look(folder: Path, look: Look) -> None:
    """Append `look`, unless it is there already.

    Raises:
        RunError: it cannot be written.
    """
    if look not in read_looks(folder):
        with RecordWriter(folder, LOOKS) as writer:
            writer.write(asdict(look))


def looks_in_words(looks: Sequence[Look], tokens: float, usd: float | None) -> list[str]:
    """A line per look, and what stopping saved at `tokens` and `usd` a question in all arms."""
    lines = []
    for number, look in enumerate(looks, 1):
        first = look.seen[0]
        lines.append(
            f"look {number}, {look.questions} questions: {first.b} - {first.a} {first.metric} "
            f"{first.difference:+.3f}, p {first.p_adjusted:.3f}, "
            + ("decided" if look.decided else "not decided")
        )
    if not looks:
        return []
    last = looks[-1]
    of = f"{last.questions} of at most {last.most} questions"
    if not last.decided:
        return [*lines, f"not decided after {of}"]
    left = last.most - last.questions
    cost = "" if usd is None else f" and ${usd * left:,.4f}"
    return [*lines, f"decided after {of}, which saved about {tokens * left:,.0f} tokens{cost}"]
