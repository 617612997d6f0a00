"""Cells of the fictional world: fifty entities, their invented names and their facts.

Cells are independent, so a world of any size is made one cell at a time. Every fact is a function
from an entity and a relation to one value, and every name belongs to one cell. A chain of relations
that starts at a named entity therefore has exactly one end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

CELL_SIZE = 50
FAMILIES = 5

_CONSONANTS, _VOWELS, _CODAS = "bdfghklmnprstvz", "aeiou", "lmnrs"
_FIRST = [c + v + e for c in _CONSONANTS for v in _VOWELS for e in _CODAS]
_SECOND = [c + v for c in _CONSONANTS for v in _VOWELS]
#: For each kind the number of names in a cell, and the last syllables. These identify the kind, so
#: no two kinds share a name. All stems have five letters, so no two names are equal.
_NAMES = {
    "country": (1, "ndria lmark vonia thia"),
    "town": (7, "ford mouth stead burg haven minster brook field"),
    "river": (2, "nar len mur"),
    "mountain": (2, "horn spire crag"),
    "school": (2, "dale crest leigh combe"),
    "brand": (4, "nex tor lix vox"),
    "surname": (5, "holt vane wick gard mond stam quist bray thorn lund"),
    "language": (1, "nish ric lese"),
    "currency": (1, "k ling t"),
}
#: Primes, so coprime to every space: steps of this length visit each name once.
_STRIDES = (1_000_003, 7_368_787, 15_485_863, 32_452_843, 49_979_687)
_GIVEN_STEMS = [c + v + e for c in "bdfhjklmnrtv" for v in "aeio" for e in "lmnrv"]
_GIVEN = {
    "m": [stem.capitalize() + ending for stem in _GIVEN_STEMS for ending in ("in", "ok", "ard")],
    "f": [stem.capitalize() + ending for stem in _GIVEN_STEMS for ending in ("a", "eth", "ise")],
}

_NOUNS = (
    "Orchard Lantern Harbour Winter Garden Bridge Mirror Silence Letters Clockmaker Lighthouse "
    "Meadow Crossing Inheritance Pilgrim Shadow Violin Market Homecoming Night Ferry Promise "
    "Festival"
)
_MONTHS = """
January
February
March
April
May
June
July
August
September
October
November
December
""".strip().splitlines()
_ELDERS_TRADES = ("merchant", "engineer", "banker", "architect", "lawyer", "physician")
_TRADES = [
    *(["film director"] * 4 + ["novelist"] * 4 + ["singer"] * 3),
    *(["industrialist"] * 2 + ["politician"] * 2),
]
#: Brand, trade and industry: two firms share a brand, twice.
_FIRMS = (
    (0, "Pictures", "film studio"),
    (1, "Pictures", "film studio"),
    (0, "Press", "publishing house"),
    (2, "Press", "publishing house"),
    (1, "Records", "record label"),
    (3, "Shipyards", "shipbuilder"),
)
#: Kind and number of its title: a remake, an adaptation, and an album named as a film.
_WORKS = """
film 0
film 0
film 1
novel 1
film 2
album 2
film 3
novel 4
novel 5
novel 6
album 7
album 8
"""
#: Kind of work -> the relation to its maker, his trade, the relation to its firm, its industry.
_MAKING = {
    "film": ("director", "film director", "studio", "film studio"),
    "novel": ("author", "novelist", "publisher", "publishing house"),
    "album": ("singer", "singer", "label", "record label"),
}
MAKER = {kind: made[0] for kind, made in _MAKING.items()}
#: Trade -> the industry that employs it.
_EMPLOYER = {made[1]: made[3] for made in _MAKING.values()}


class SeededRandom:
    """Seeded choices that use only `random.random`, which is stable across Python versions."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """Return a random whole number from `low` to `high`, both included.

        Args:
            low: Smallest number.
            high: Largest number.
        """
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in a random order (Fisher-Yates)."""
        result = list(items)
        for i in range(len(result) - 1, 0, -1):
            j = self.below(i + 1)
            result[i], result[j] = result[j], result[i]
        return result


def names_of(seed: int, cell: int) -> dict[str, list[str]]:
    """Return the names of a cell. No name is used twice in a world.

    Args:
        seed: Seed of the world.
        cell: Index of the cell.

    Returns:
        The names of each kind.
    """
    dice = SeededRandom(f"{seed}:names")
    by_kind: dict[str, list[str]] = {kind: [] for kind in _NAMES}
    for kind, (count, last_syllables) in _NAMES.items():
        endings = last_syllables.split()
        stride = dice.pick(_STRIDES)
        offset = dice.below(10**9)
        for n in range(cell * count, (cell + 1) * count):
            place = (n * stride + offset) % (len(_FIRST) * len(_SECOND) * len(endings))
            place, head = divmod(place, len(_FIRST))
            ending, tail = divmod(place, len(_SECOND))
            by_kind[kind].append((_FIRST[head] + _SECOND[tail] + endings[ending]).capitalize())
    return by_kind


@dataclass(eq=False, slots=True)
class Entity:
    """Entity with one passage.

    Attributes:
        kind: Kind, such as `person`.
        name: Name in texts.
        title: Unique title of its passage.
        mention: Name that distinguishes it from a namesake.
        aliases: Other names.
        facts: Relation -> entity or text.
        details: Statements of the passage that no question asks for.
    """

    kind: str
    name: str
    title: str = ""
    mention: str = ""
    aliases: list[str] = field(default_factory=list)
    facts: dict[str, Entity | str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.title = self.title or self.name
        self.mention = self.mention or self.name


def build_cell(seed: int, index: int) -> tuple[Entity, ...]:
    """Build the fifty entities of a cell. Relations stay inside the cell.

    Args:
        seed: Seed of the world.
        index: Index of the cell.
    """
    return _Builder(SeededRandom(f"{seed}:{index}"), names_of(seed, index)).cell()


class _Builder:
    """Builder of a cell. A later entity may refer to an earlier one."""

    def __init__(self, dice: SeededRandom, words_by_kind: Mapping[str, Sequence[str]]) -> None:
        self.dice = dice
        self.names = words_by_kind
        self.era = 1850 + dice.below(31)

    def cell(self) -> tuple[Entity, ...]:
        self.rivers = list(map(self._river, range(2)))
        self.towns = [Entity("town", name) for name in self.names["town"]]
        self.country = self._country()
        self.schools = [
            Entity("school", f"{name} University", aliases=[f"University of {name}"])
            for name in self.names["school"]
        ]
        self.people_are = {"people": self.country.details["people"]}
        self.firms = self._firms()
        people = self._people()
        works = self._works(people)
        self._offices(people)
        places = [self.country, *self.towns, *self.rivers, *self.schools, *self.firms]
        return (*places, *people, *works)

    def _river(self, i: int) -> Entity:
        river = Entity("river", f"{self.names['river'][i]} River")
        river.mention = f"the {river.name}"
        kilometres = 60 + 2 * self.dice.below(150) + i  # Odd and even: never equal in a cell.
        mountain = f"Mount {self.names['mountain'][i]}"
        river.facts = {"length": f"{kilometres} kilometres", "source": mountain}
        river.details["mouth"] = self.dice.pick(("the sea", "a salt lake", "a wide delta"))
        return river

    def _country(self) -> Entity:
        [name] = self.names["country"]
        country = Entity("country", name, aliases=[f"Republic of {name}"])
        country.facts = {
            "capital": self.towns[0],
            "language": self.names["language"][0],
            "currency": self.names["currency"][0].lower(),
            "independence": str(self.era - self.dice.between(5, 90)),
        }
        country.details["people"] = f"{name}n" if name.endswith("a") else f"{name}ian"
        return country

    def _firms(self) -> list[Entity]:
        firms = []
        for brand, trade, industry in _FIRMS:
            name = f"{self.names['brand'][brand]} {trade}"
            firm = Entity("firm", name, aliases=[f"{name} Company"])
            firm.facts["seat"] = self.dice.pick(self.towns)
            firm.details = {"industry": industry, **self.people_are}
            firms.append(firm)
        return firms

    def _people(self) -> list[Entity]:
        surnames = self.names["surname"]
        trades = self.dice.shuffled(_TRADES)
        elders_trades = self.dice.shuffled(_ELDERS_TRADES)
        # Few given names, so that families share them; none is used twice in one family.
        start = {sex: self.dice.below(len(choices)) for sex, choices in _GIVEN.items()}

        def given(sex: str, family: int, member: int) -> str:
            place = (family + 2 * member) % 7
            return _GIVEN[sex][(start[sex] + 37 * place) % len(_GIVEN[sex])]

        elders, sons, daughters, youngest = [list[Entity]() for _ in range(4)]
        for i, surname in enumerate(surnames):
            born = self.era + self.dice.below(9)
            elders.append(self._person("m", given("m", i, 0), surname, elders_trades[i], born))
            for group, sex in ((sons, "m"), (daughters, "f")):
                child = born + self.dice.between(24, 32)
                group.append(self._person(sex, given(sex, i, 1), surname, trades.pop(), child))
                group[-1].facts["father"] = elders[i]
        for i, surname in enumerate(surnames):
            father = sons[i]
            mother = daughters[(i + 1) % FAMILIES]
            father.facts["wife"] = mother
            mother.facts["husband"] = father
            married = str(max(_year(father), _year(mother)) + 17)
            father.details["married"] = mother.details["married"] = married
            sex = "m" if i == 0 else self.dice.pick("mf")
            forename = given(sex, i, 0 if i == 0 else 2)
            born = max(_year(father), _year(mother)) + self.dice.between(18, 26)
            youngest.append(self._person(sex, forename, surname, trades.pop(), born))
            youngest[-1].facts |= {"father": father, "mother": mother}
        for namesake in (elders[0], youngest[0]):
            trade = namesake.details["trade"]
            namesake.title = f"{namesake.name} ({trade})"
            namesake.mention = f"the {trade} {namesake.name}"
        return [*elders, *sons, *daughters, *youngest]

    def _person(self, sex: str, forename: str, surname: str, trade: str, born: int) -> Entity:
        middle = self.dice.pick(_GIVEN[sex])
        person = Entity(
            "person", f"{forename} {surname}", aliases=[f"{forename} {middle} {surname}"]
        )
        person.details = {"sex": sex, "trade": trade, **self.people_are}
        person.facts["birthdate"] = self._date(born)
        person.facts["birthplace"] = self.dice.pick(self.towns)
        if born > self.era + 20:  # the universities are younger than the first generation
            person.facts["university"] = self.dice.pick(self.schools)
        died = born + self.dice.between(52, 88)
        if died <= 2015:
            person.facts["deathdate"] = self._date(died)
            person.facts["deathplace"] = self.dice.pick(self.towns)
        if trade in _EMPLOYER:
            person.facts["employer"] = self.dice.pick(self._employers(trade))
        return person

    def _employers(self, trade: str) -> list[Entity]:
        return [f for f in self.firms if f.details["industry"] == _EMPLOYER[trade]]

    def _works(self, people: list[Entity]) -> list[Entity]:
        words = [*(town.name for town in self.towns), *self.names["surname"]]
        places = self.dice.shuffled(words)
        nouns = self.dice.shuffled(_NOUNS.split())
        titles = [f"The {n} of {place}" for n, place in zip(nouns, places, strict=False)]
        works: list[Entity] = []
        uses = Counter[str]()
        first_of_kind: dict[str, Entity] = {}
        for line in _WORKS.strip().splitlines():
            kind, number = line.split()
            by, trade, firm, _ = _MAKING[kind]
            work = Entity(kind, titles[int(number)])
            twin = first_of_kind.setdefault(f"{kind} {work.name}", work)
            before = twin.facts.get(by)
            makers = [p for p in people if p.details["trade"] == trade and p is not before]
            maker = self.dice.pick(makers)
            year = _year(maker) + self.dice.between(26, 44)
            if str(year) == twin.facts.get("year"):
                year += 1
            work.facts = {by: maker, "year": str(year)}
            work.facts[firm] = self.dice.pick(self._employers(trade))
            if kind != "album":
                work.facts["setting"] = self.dice.pick(self.towns)
            works.append(work)
            uses.update([work.name, f"{kind} {work.name}"])
        for work in works:  # Add to title and mention only what distinguishes namesakes.
            described = f"{work.kind} {work.name}"
            work.mention = f"the {described}"
            if uses[described] > 1:
                work.title = f"{work.name} ({work.facts['year']} {work.kind})"
                work.mention = f"the {work.facts['year']} {described}"
            elif uses[work.name] > 1:
                work.title = f"{work.name} ({work.kind})"
        return works

    def _offices(self, people: list[Entity]) -> None:
        """Assign mayors, founders and rectors. Nobody holds two offices of one kind.

        The first generation founds the firms and heads the universities of the later ones.
        """
        elders = people[:FAMILIES]
        later = people[FAMILIES : 3 * FAMILIES]
        for town, mayor in zip(self.towns, self.dice.shuffled([*elders, *later]), strict=False):
            charter = str(_year(mayor) + self.dice.between(30, 45))
            river = self.dice.pick(self.rivers)
            population = f"{self.dice.between(2, 480)},{self.dice.below(1000):03d}"
            town.facts |= {"country": self.country, "river": river, "mayor": mayor}
            town.facts |= {"charter": charter, "population": population}
        founders = [*self.dice.shuffled(elders), self.dice.pick(later)]
        for firm, founder in zip(self.firms, founders, strict=True):
            founded = str(_year(founder) + self.dice.between(25, 36))
            firm.facts |= {"founder": founder, "founded": founded}
        for school, rector in zip(self.schools, self.dice.shuffled(elders), strict=False):
            school.facts |= {"town": self.dice.pick(self.towns), "rector": rector}
            school.facts["founded"] = str(_year(rector) + self.dice.between(25, 36))

    def _date(self, year: int) -> str:
        return f"{self.dice.between(1, 28)} {self.dice.pick(_MONTHS)} {year}"


def _year(person: Entity) -> int:
    """Return the year of birth."""
    return int(str(person.facts["birthdate"]).rsplit(" ", 1)[1])
