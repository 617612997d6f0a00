"""Chains of passages that share names: what a question of several hops can lead along.

A link is a name that few passages hold. It leads best to the passage that it is the title of: that
one says what the name is. The names are found by their form alone, as in `linear_rag` without an
LM.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragbench.passages import Passage
from ragbench.retrievers.lm_index.linear import by_pattern
from ragbench.words import fold

#: A name that more passages hold leads nowhere in particular.
MOST_HOLDERS = 8
#: Passages that a chain is looked for from, for each that is wanted, before it is given up.
_TRIES = 50


@dataclass(frozen=True)
class Chain:
    """Passages in the order of their hops, and the name that leads from each to the next."""

    passages: tuple[Passage, ...]
    links: tuple[str, ...]

    @property
    def key(self) -> str:
        """What tells the chain from others: its passages, in whatever order."""
        return " ".join(sorted(passage.pid for passage in self.passages))


def find_chains(passages: Sequence[Passage], hops: Sequence[int], *, seed: int) -> Iterator[Chain]:
    """Yields chains of as many passages as `hops` says, in turn, no two of the same passages.

    The same passages and seed give the same chains. It ends where none is found any more.
    """
    chance = random.Random(f"ragbench questions {seed}")
    names_of_passages = list(map(_names_of, passages))
    holders = _holders(names_of_passages)
    titles: dict[str, int] = {}
    for place, passage in enumerate(passages):
        titles.setdefault(fold(passage.title), place)
    used = set[str]()
    failures = 0
    turn = 0
    while failures < _TRIES * max(len(hops), 1):
        length = hops[turn % len(hops)]
        chain = _walk(passages, names_of_passages, holders, titles, length, chance)
        if chain is None or chain.key in used:
            failures += 1
            continue
        failures = 0
        turn += 1
        used.add(chain.key)
        yield chain


def _names_of(passage: Passage) -> dict[str, str]:
    """Returns the names in a passage, folded and as they stand."""
    by_fold: dict[str, str] = {}
    for name in by_pattern(f"{passage.title}. {passage.text}"):
        by_fold.setdefault(fold(name), name)
    return by_fold


def _holders(names_of_passages: Sequence[Mapping[str, str]]) -> dict[str, list[int]]:
    holders: dict[str, list[int]] = {}
    for place, held in enumerate(names_of_passages):
        for name in held:
            holders.setdefault(name, []).append(place)
    linking = {}
    for name, places in holders.items():
        if 2 <= len(places) <= MOST_HOLDERS:
            linking[name] = places
    return linking


def _walk(
    passages: Sequence[Passage],
    names_of_passages: Sequence[Mapping[str, str]],
    holders: Mapping[str, Sequence[int]],
    titles: Mapping[str, int],
    length: int,
    chance: random.Random,
) -> Chain | None:
    """Returns a chain of `length` passages from one at random; None where the walk ends early."""
    places = [chance.randrange(len(passages))]
    links: list[str] = []
    while len(places) < length:
        here = places[-1]
        steps: list[tuple[str, int]] = []
        titled: list[tuple[str, int]] = []
        for name in sorted(names_of_passages[here]):
            if name in map(fold, links) or fold(passages[here].title) == name:
                continue
            for place in holders.get(name, ()):
                if place not in places:
                    steps.append((names_of_passages[here][name], place))
                    if titles.get(name) == place:
                        titled.append((names_of_passages[here][name], place))
        if not steps:
            return None
        link, place = chance.choice(titled or steps)
        links.append(link)
        places.append(place)
    return Chain(tuple(passages[place] for place in places), tuple(links))
