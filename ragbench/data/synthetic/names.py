"""Invented names, each used once in a world of any size without a list of those in use."""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

_CONSONANTS, _VOWELS, _CODAS = "bdfghklmnprstvz", "aeiou", "lmnrs"
_FIRST = [c + v + e for c in _CONSONANTS for v in _VOWELS for e in _CODAS]
_SECOND = [c + v for c in _CONSONANTS for v in _VOWELS]

#: The last syllable tells the kind, so no two kinds share a name; all stems have five letters, so
#: no two pairs of stem and ending spell the same word.
_ENDINGS: Mapping[str, Sequence[str]] = {
    "country": ("ndria", "lmark", "vonia", "thia"),
    "town": ("ford", "mouth", "stead", "burg", "haven", "minster", "brook", "field"),
    "river": ("nar", "len", "mur"),
    "mountain": ("horn", "spire", "crag"),
    "school": ("dale", "crest", "leigh", "combe"),
    "brand": ("nex", "tor", "lix", "vox"),
    "surname": ("holt", "vane", "wick", "gard", "mond", "stam", "quist", "bray", "thorn", "lund"),
    "language": ("nish", "ric", "lese"),
    "currency": ("k", "ling", "t"),
}
#: How many names of a kind one cell of the world takes.
PER_CELL: Mapping[str, int] = {
    "country": 1,
    "town": 7,
    "river": 2,
    "mountain": 2,
    "school": 2,
    "brand": 4,
    "surname": 5,
    "language": 1,
    "currency": 1,
}
#: Primes, so coprime to every space: steps of this length visit each name once.
_STRIDES = (1_000_003, 7_368_787, 15_485_863, 32_452_843, 49_979_687)

_GIVEN_STEMS = [c + v + e for c in "bdfhjklmnrtv" for v in "aeio" for e in "lmnrv"]
GIVEN = {
    "m": [stem.capitalize() + ending for stem in _GIVEN_STEMS for ending in ("in", "ok", "ard")],
    "f": [stem.capitalize() + ending for stem in _GIVEN_STEMS for ending in ("a", "eth", "ise")],
}


#: How many names there are of each kind.
_SPACE = {kind: len(_FIRST) * len(_SECOND) * len(ends) for kind, ends in _ENDINGS.items()}


class Dice:
    """Seeded choices; rests on `random.random` alone, which Python keeps the same for ever."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """One of `items`."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in a random order (Fisher-Yates)."""
        result = list(items)
        for i in range(len(result) - 1, 0, -1):
            j = self.below(i + 1)
            result[i], result[j] = result[j], result[i]
        return result


class Namer:
    """The names of one world: the n-th name of a kind is computed, not remembered."""

    def __init__(self, seed: int) -> None:
        dice = Dice(f"{seed}:names")
        self._steps = {kind: (dice.pick(_STRIDES), dice.below(10**9)) for kind in _ENDINGS}

    def name(self, kind: str, n: int) -> str:
        """The n-th name of a kind; distinct for distinct n below the size of the space."""
        stride, offset = self._steps[kind]
        place = (n * stride + offset) % _SPACE[kind]
        place, first = divmod(place, len(_FIRST))
        ending, second = divmod(place, len(_SECOND))
        return (_FIRST[first] + _SECOND[second] + _ENDINGS[kind][ending]).capitalize()

    def of_cell(self, kind: str, cell: int) -> list[str]:
        """The names of a kind that belong to one cell."""
        count = PER_CELL[kind]
        return [self.name(kind, cell * count + i) for i in range(count)]
