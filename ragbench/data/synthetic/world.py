"""A cell of the fictional world: fifty entities and the facts between them.

Cells do not know of each other, so a world of any size is made one cell at a time. Every fact is a
function, from an entity and a relation to one value, and every name belongs to one cell, so a chain
of relations that starts at a named entity has exactly one end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ragbench.data.synthetic.names import GIVEN, Dice, Namer

CELL_SIZE = 50
FAMILIES = 5

_NOUNS = (
    *("Orchard", "Lantern", "Harbour", "Winter", "Garden", "Bridge", "Mirror", "Silence"),
    *("Letters", "Clockmaker", "Lighthouse", "Meadow", "Crossing", "Inheritance", "Pilgrim"),
    *("Shadow", "Violin", "Market", "Homecoming", "Night", "Ferry", "Promise", "Festival"),
)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_ELDERS_TRADES = ("merchant", "engineer", "banker", "architect", "lawyer", "physician")
_TRADES = [
    *["film director"] * 4,
    *["novelist"] * 4,
    *["singer"] * 3,
    *["industrialist"] * 2,
    *["politician"] * 2,
]
_FIRMS = (
    ("Pictures", "film studio"),
    ("Pictures", "film studio"),
    ("Press", "publishing house"),
    ("Press", "publishing house"),
    ("Records", "record label"),
    ("Shipyards", "shipbuilder"),
)
_BRANDS = (0, 1, 0, 2, 1, 3)  # two firms share a brand, twice
_WORKS = (
    # kind and number of its title: a remake, an adaptation, and an album named as a film
    ("film", 0),
    ("film", 0),
    ("film", 1),
    ("novel", 1),
    ("film", 2),
    ("album", 2),
    ("film", 3),
    ("novel", 4),
    ("novel", 5),
    ("novel", 6),
    ("album", 7),
    ("album", 8),
)
MAKER = {"film": "director", "novel": "author", "album": "singer"}
FIRM = {"film": "studio", "novel": "publisher", "album": "label"}
_TRADE = {"film": "film director", "novel": "novelist", "album": "singer"}
_INDUSTRY = {"film": "film studio", "novel": "publishing house", "album": "record label"}


@dataclass(eq=False, slots=True)
class Entity:
    """Something with a passage of its own.

    `name` is what texts call it, `mention` how they tell it from a namesake, `title` the unique
    heading of its passage. `facts` maps a relation to an entity or to a text; `details` holds what
    is told but never asked.
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

    def of(self, relation: str) -> Entity:
        """The entity at the other end of a relation that leads to one."""
        value = self.facts[relation]
        assert isinstance(value, Entity)
        return value


@dataclass(frozen=True)
class Cell:
    """Fifty entities; relations never leave the cell."""

    index: int
    entities: tuple[Entity, ...]

    def of_kind(self, kind: str) -> list[Entity]:
        """The entities of one kind, in order."""
        return [entity for entity in self.entities if entity.kind == kind]


def build_cell(seed: int, index: int, namer: Namer) -> Cell:
    """Cell `index` of the world of `seed`."""
    return _Builder(Dice(f"{seed}:{index}"), namer, index).cell()


class _Builder:
    def __init__(self, dice: Dice, namer: Namer, index: int) -> None:
        self.dice, self.namer, self.index = dice, namer, index
        self.era = 1850 + dice.below(31)

    def cell(self) -> Cell:
        """All of it; what comes later may refer to what comes earlier."""
        self.rivers = [self._river(i) for i in range(2)]
        self.towns = [Entity("town", name) for name in self._names("town")]
        self.country = self._country()
        self.schools = [
            Entity("school", f"{name} University", aliases=[f"University of {name}"])
            for name in self._names("school")
        ]
        self.firms = self._firms()
        people = self._people()
        works = self._works(people)
        self._offices(people)
        entities = [self.country, *self.towns, *self.rivers, *self.schools, *self.firms]
        assert len(entities) + len(people) + len(works) == CELL_SIZE
        return Cell(self.index, (*entities, *people, *works))

    def _names(self, kind: str) -> list[str]:
        return self.namer.of_cell(kind, self.index)

    def _river(self, i: int) -> Entity:
        river = Entity("river", f"{self._names('river')[i]} River")
        river.mention = f"the {river.name}"
        kilometres = 60 + 2 * self.dice.below(150) + i  # odd and even: never equal in a cell
        river.facts = {
            "length": f"{kilometres} kilometres",
            "source": f"Mount {self._names('mountain')[i]}",
        }
        river.details["mouth"] = self.dice.pick(("the sea", "a salt lake", "a wide delta"))
        return river

    def _country(self) -> Entity:
        (name,), (language,), (currency,) = map(self._names, ("country", "language", "currency"))
        facts: dict[str, Entity | str] = {
            "capital": self.towns[0],
            "language": language,
            "currency": currency.lower(),
            "independence": str(self.era - self.dice.between(5, 90)),
        }
        country = Entity("country", name, aliases=[f"Republic of {name}"], facts=facts)
        country.details["people"] = f"{name}n" if name.endswith("a") else f"{name}ian"
        return country

    def _firms(self) -> list[Entity]:
        brands = self._names("brand")
        firms = []
        for (trade, industry), brand in zip(_FIRMS, _BRANDS, strict=True):
            name = f"{brands[brand]} {trade}"
            firm = Entity("firm", name, aliases=[f"{name} Company"])
            firm.facts["seat"] = self.dice.pick(self.towns)
            firm.details["industry"] = industry
            firm.details["people"] = self.country.details["people"]
            firms.append(firm)
        return firms

    def _people(self) -> list[Entity]:
        surnames = self._names("surname")
        trades = self.dice.shuffled(_TRADES)
        elders_trades = self.dice.shuffled(_ELDERS_TRADES)
        # Few given names, so that families share them; none is used twice in one family.
        start = {sex: self.dice.below(len(names)) for sex, names in GIVEN.items()}

        def given(sex: str, family: int, member: int) -> str:
            place = (family + 2 * member) % 7
            return GIVEN[sex][(start[sex] + 37 * place) % len(GIVEN[sex])]

        elders: list[Entity] = []
        sons: list[Entity] = []
        daughters: list[Entity] = []
        youngest: list[Entity] = []
        for i, surname in enumerate(surnames):
            born = self.era + self.dice.below(9)
            elders.append(self._person("m", given("m", i, 0), surname, elders_trades[i], born))
            for group, sex in ((sons, "m"), (daughters, "f")):
                child = born + self.dice.between(24, 32)
                group.append(self._person(sex, given(sex, i, 1), surname, trades.pop(), child))
                group[-1].facts["father"] = elders[i]
        for i, surname in enumerate(surnames):
            father, mother = sons[i], daughters[(i + 1) % FAMILIES]
            self._marry(father, mother)
            sex = "m" if i == 0 else self.dice.pick("mf")
            first = given(sex, i, 0 if i == 0 else 2)
            born = max(_year(father), _year(mother)) + self.dice.between(18, 26)
            child_ = self._person(sex, first, surname, trades.pop(), born)
            child_.facts |= {"father": father, "mother": mother}
            youngest.append(child_)
        for namesake in (elders[0], youngest[0]):
            trade = namesake.details["trade"]
            namesake.title = f"{namesake.name} ({trade})"
            namesake.mention = f"the {trade} {namesake.name}"
        return [*elders, *sons, *daughters, *youngest]

    def _person(self, sex: str, given: str, surname: str, trade: str, born: int) -> Entity:
        person = Entity("person", f"{given} {surname}")
        middle = self.dice.pick(GIVEN[sex])
        person.aliases = [f"{given} {middle} {surname}"]
        person.details = {"sex": sex, "trade": trade}
        person.details["people"] = self.country.details["people"]
        person.facts["birthdate"] = self._date(born)
        person.facts["birthplace"] = self.dice.pick(self.towns)
        if born > self.era + 20:  # the universities are younger than the first generation
            person.facts["university"] = self.dice.pick(self.schools)
        died = born + self.dice.between(52, 88)
        if died <= 2015:
            person.facts["deathdate"] = self._date(died)
            person.facts["deathplace"] = self.dice.pick(self.towns)
        kind = next((kind for kind, known in _TRADE.items() if known == trade), None)
        if kind is not None:
            person.facts["employer"] = self.dice.pick(self._industry(kind))
        return person

    def _marry(self, husband: Entity, wife: Entity) -> None:
        husband.facts["wife"], wife.facts["husband"] = wife, husband
        year = str(max(_year(husband), _year(wife)) + 17)
        husband.details["married"] = wife.details["married"] = year

    def _industry(self, kind: str) -> list[Entity]:
        return [f for f in self.firms if f.details["industry"] == _INDUSTRY[kind]]

    def _works(self, people: list[Entity]) -> list[Entity]:
        words = [*(town.name for town in self.towns), *self._names("surname")]
        places = self.dice.shuffled(words)
        titles = [
            f"The {noun} of {place}"
            for noun, place in zip(self.dice.shuffled(_NOUNS), places, strict=False)
        ]
        works: list[Entity] = []
        for kind, number in _WORKS:
            makers = [p for p in people if p.details["trade"] == _TRADE[kind]]
            twin = next((w for w in works if w.name == titles[number] and w.kind == kind), None)
            if twin is not None:
                makers = [maker for maker in makers if maker is not twin.facts[MAKER[kind]]]
            maker = self.dice.pick(makers)
            year = _year(maker) + self.dice.between(26, 44)
            if twin is not None and str(year) == twin.facts["year"]:
                year += 1
            work = Entity(kind, titles[number])
            work.facts = {MAKER[kind]: maker, "year": str(year)}
            work.facts[FIRM[kind]] = self.dice.pick(self._industry(kind))
            if kind != "album":
                work.facts["setting"] = self.dice.pick(self.towns)
            works.append(work)
        for work in works:
            _tell_apart(work, works)
        return works

    def _offices(self, people: list[Entity]) -> None:
        """Mayors, founders and rectors: nobody holds two offices of one kind.

        The first generation founds the firms and heads the universities that the others meet.
        """
        elders, later = people[:FAMILIES], people[FAMILIES : 3 * FAMILIES]
        for town, mayor in zip(self.towns, self.dice.shuffled([*elders, *later]), strict=False):
            charter = str(_year(mayor) + self.dice.between(30, 45))
            river = self.dice.pick(self.rivers)
            town.facts |= {"country": self.country, "river": river, "mayor": mayor}
            town.facts |= {"charter": charter}
            town.facts["population"] = f"{self.dice.between(2, 480)},{self.dice.below(1000):03d}"
        founders = [*self.dice.shuffled(elders), self.dice.pick(later)]
        for firm, founder in zip(self.firms, founders, strict=True):
            firm.facts |= {"founder": founder}
            firm.facts["founded"] = str(_year(founder) + self.dice.between(25, 36))
        for school, rector in zip(self.schools, self.dice.shuffled(elders), strict=False):
            school.facts |= {"town": self.dice.pick(self.towns), "rector": rector}
            school.facts["founded"] = str(_year(rector) + self.dice.between(25, 36))

    def _date(self, year: int) -> str:
        return f"{self.dice.between(1, 28)} {self.dice.pick(_MONTHS)} {year}"


def _tell_apart(work: Entity, works: list[Entity]) -> None:
    """Title and mention, with as much beside the name as its namesakes make needful."""
    namesakes = [other for other in works if other.name == work.name and other is not work]
    work.mention = f"the {work.kind} {work.name}"
    if any(other.kind == work.kind for other in namesakes):
        work.title = f"{work.name} ({work.facts['year']} {work.kind})"
        work.mention = f"the {work.facts['year']} {work.kind} {work.name}"
    elif namesakes:
        work.title = f"{work.name} ({work.kind})"


def _year(person: Entity) -> int:
    """The year of birth."""
    return int(str(person.facts["birthdate"]).rsplit(" ", 1)[1])
