"""Chains of passages that share names, from which multi-hop questions can be written.

A link is a name that few passages contain. The best link leads to the passage with that title,
which describes it. Names are found by their form, as in `linear_rag` without an LM.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragbench.passages import Passage
from ragbench.retrievers.lm_index.linear import by_pattern
from ragbench.text_normalization import fold

#: Maximum number of passages with a name. More common names do not link.
MOST_HOLDERS = 8
#: Failed walks per number of hops before the search ends.
_TRIES = 50


@dataclass(frozen=True)
class PassageChain:
    """Passages in the order of their hops, and the name that links each to the next."""

    passages: tuple[Passage, ...]
    links: tuple[str, ...]

    @property
    def key(self) -> str:
        """The identity of the chain: its passages in any order."""
        return " ".join(sorted(passage.pid for passage in self.passages))


def find_chains(
    passages: Sequence[Passage], hops: Sequence[int], *, seed: int
) -> Iterator[PassageChain]:
    """Yield distinct chains of passages.

    Args:
        passages: Passages of the corpus.
        hops: Numbers of passages of a chain, used in turn.
        seed: Seed of the random walk. The same passages and seed give the same chains.

    Yields:
        Chains. No two have the same passages. It ends if no further chain is found.
    """
    walk = _Walk(passages, seed)
    used = set[str]()
    failures = 0
    while failures < _TRIES * len(hops):
        chain = walk.chain(hops[len(used) % len(hops)])
        if chain is None or chain.key in used:
            failures += 1
            continue
        failures = 0
        used.add(chain.key)
        yield chain


def _names_of(passage: Passage) -> dict[str, str]:
    """Return the names in a passage, by their folded form."""
    by_fold: dict[str, str] = {}
    for name in by_pattern(f"{passage.title}. {passage.text}"):
        by_fold.setdefault(fold(name), name)
    return by_fold


class _Walk:
    """Random walks over `passages`, from each to one that shares a name with it."""

    def __init__(self, passages: Sequence[Passage], seed: int) -> None:
        self._passages = passages
        self._chance = random.Random(f"ragbench questions {seed}")
        self._names = list(map(_names_of, passages))
        self._holders: dict[str, list[int]] = {}
        self._titles: dict[str, int] = {}
        for place, passage in enumerate(passages):
            self._titles.setdefault(fold(passage.title), place)
            for name in self._names[place]:
                self._holders.setdefault(name, []).append(place)

    def chain(self, length: int) -> PassageChain | None:
        """Return a chain of `length` passages, or None if the walk ends early."""
        places = [self._chance.randrange(len(self._passages))]
        links: list[str] = []
        while len(places) < length:
            here = places[-1]
            steps: list[tuple[str, int]] = []
            titled: list[tuple[str, int]] = []
            for name, link in sorted(self._names[here].items()):
                holders = self._holders[name]
                own = fold(self._passages[here].title) == name
                if own or len(holders) > MOST_HOLDERS or name in map(fold, links):
                    continue
                for place in holders:
                    if place not in places:
                        steps.append((link, place))
                        if self._titles.get(name) == place:
                            titled.append((link, place))
            if not steps:
                return None
            link, place = self._chance.choice(titled or steps)
            links.append(link)
            places.append(place)
        return PassageChain(tuple(self._passages[place] for place in places), tuple(links))
