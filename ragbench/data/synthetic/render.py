"""Passages of the fictional world: one per entity, three to six sentences.

Each fact stands in one sentence of its subject's passage, and the renderer says in which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ragbench.data.passages import from_sentences
from ragbench.data.synthetic.names import Dice
from ragbench.data.synthetic.world import FIRM, MAKER, Entity
from ragbench.retrievers import Passage

#: A sentence and the relations it states.
Line = tuple[str, tuple[str, ...]]


class Rendered(NamedTuple):
    """A passage, and the index of the sentence that states each relation of its entity."""

    passage: Passage
    stated: dict[str, int]


def render(entity: Entity, dice: Dice) -> Rendered:
    """The passage of `entity`; `dice` choose the wording."""
    write = _WRITERS.get(entity.kind, _work)
    lines = [line for line in write(entity, dice) if line[0]]
    stated = {relation: i for i, (_, relations) in enumerate(lines) for relation in relations}
    return Rendered(from_sentences(entity.title, [text for text, _ in lines]), stated)


def _m(entity: Entity, relation: str) -> str:
    """How the other end of a relation is mentioned."""
    value = entity.facts[relation]
    return value.mention if isinstance(value, Entity) else value


def _country(e: Entity, dice: Dice) -> list[Line]:
    opening = dice.pick(
        (
            f"{e.name}, officially the {e.aliases[0]}, is a country whose capital is "
            f"{_m(e, 'capital')}.",
            f"{e.name}, officially the {e.aliases[0]}, is a small country governed from its "
            f"capital, {_m(e, 'capital')}.",
        )
    )
    return [
        (opening, ("capital",)),
        (
            f"Its official language is {_m(e, 'language')} and its currency is the "
            f"{_m(e, 'currency')}.",
            ("language", "currency"),
        ),
        (f"The country became independent in {_m(e, 'independence')}.", ("independence",)),
        (dice.pick(("Most of its land is farmed.", "Its coast is known for heavy fog.", "")), ()),
    ]


def _town(e: Entity, dice: Dice) -> list[Line]:
    trade = dice.pick(("glass", "wool", "clocks", "paper", "salt", "cider"))
    return [
        (
            f"{e.name} is a town in {_m(e, 'country')}, on the banks of {_m(e, 'river')}.",
            ("country", "river"),
        ),
        (f"It has a population of {_m(e, 'population')}.", ("population",)),
        (
            f"It was granted its town charter in {_m(e, 'charter')}, and its first mayor was "
            f"{_m(e, 'mayor')}.",
            ("charter", "mayor"),
        ),
        (f"The town has long been known for its {trade}.", ()),
    ]


def _river(e: Entity, dice: Dice) -> list[Line]:
    return [
        (f"The {e.name} is a river that ends in {e.details['mouth']}.", ()),
        (f"It rises on {_m(e, 'source')}.", ("source",)),
        (f"The river is {_m(e, 'length')} long.", ("length",)),
        (dice.pick(("It freezes in most winters.", "Barges use its lower course.", "")), ()),
    ]


def _school(e: Entity, dice: Dice) -> list[Line]:
    return [
        (f"{e.name} ({e.aliases[0]}) is a university in {_m(e, 'town')}.", ("town",)),
        (
            f"It was founded in {_m(e, 'founded')}, with {_m(e, 'rector')} as its first rector.",
            ("founded", "rector"),
        ),
        (f"Its library holds {dice.between(20, 900)} thousand volumes.", ()),
    ]


def _firm(e: Entity, dice: Dice) -> list[Line]:
    people, industry = e.details["people"], e.details["industry"]
    article = "an" if people[0] in "AEIOU" else "a"
    return [
        (
            f"{e.name}, formally the {e.aliases[0]}, is {article} {people} {industry} based in "
            f"{_m(e, 'seat')}.",
            ("seat",),
        ),
        (
            dice.pick(
                (
                    f"It was founded in {_m(e, 'founded')} by {_m(e, 'founder')}.",
                    f"{_m(e, 'founder')[0].upper()}{_m(e, 'founder')[1:]} founded it in "
                    f"{_m(e, 'founded')}.",
                )
            ),
            ("founder", "founded"),
        ),
        (f"At its height it employed {dice.between(2, 90)} hundred people.", ()),
        (dice.pick(("Its archive was lost in a fire.", "It changed hands several times.", "")), ()),
    ]


def _person(e: Entity, dice: Dice) -> list[Line]:
    he = "He" if e.details["sex"] == "m" else "She"
    full, trade = e.aliases[0], f"{e.details['people']} {e.details['trade']}"
    dead = "deathdate" in e.facts
    dates = f"{e.facts['birthdate']} \u2013 " + str(e.facts["deathdate"]) if dead else ""
    opening = (
        f"{full} ({dates}) was a {trade}."
        if dead
        else f"{full} (born {e.facts['birthdate']}) is a {trade}."
    )
    lines: list[Line] = [(opening, ("birthdate", "deathdate") if dead else ("birthdate",))]
    lines.append(_origin(e, he))
    if "university" in e.facts:
        work = f" and later worked for {_m(e, 'employer')}" if "employer" in e.facts else ""
        stated = ("university", "employer") if work else ("university",)
        lines.append((f"{he} studied at {_m(e, 'university')}{work}.", stated))
    for spouse in ("wife", "husband"):
        if spouse in e.facts:
            other = _m(e, spouse)
            lines.append((f"In {e.details['married']} {he.lower()} married {other}.", (spouse,)))
    if dead:
        lines.append((f"{he} died in {_m(e, 'deathplace')}.", ("deathplace",)))
    if len(lines) < 4:
        lines.append((f"{he} kept a diary for most of a long life.", ()))
    return lines


def _origin(e: Entity, he: str) -> Line:
    child = "son" if he == "He" else "daughter"
    parents = [_m(e, parent) for parent in ("father", "mother") if parent in e.facts]
    of = f", the {child} of {' and '.join(parents)}" if parents else ""
    stated = [name for name in ("birthplace", "father", "mother") if name in e.facts]
    return f"{he} was born in {_m(e, 'birthplace')}{of}.", tuple(stated)


def _work(e: Entity, dice: Dice) -> list[Line]:
    maker, firm = MAKER[e.kind], FIRM[e.kind]
    genre = dice.pick(("comic", "historical", "romantic", "experimental"))
    article = "an" if genre[0] == "e" else "a"
    verb = {"film": "directed", "novel": "written", "album": "recorded"}[e.kind]
    opening = dice.pick(
        (
            f"{e.name} is {article} {genre} {e.kind} {verb} by {_m(e, maker)} and released in "
            f"{_m(e, 'year')}.",
            f"{e.name} is a {_m(e, 'year')} {genre} {e.kind} {verb} by {_m(e, maker)}.",
        )
    )
    role = {"film": "produced", "novel": "published", "album": "released"}[e.kind]
    lines: list[Line] = [
        (opening, (maker, "year")),
        (f"It was {role} by {_m(e, firm)}.", (firm,)),
    ]
    if "setting" in e.facts:
        lines.append((f"The story is set in {_m(e, 'setting')}.", ("setting",)))
    lines.append((dice.pick(_RECEPTION), ()))
    return lines


_RECEPTION = (
    "Critics were divided when it first appeared.",
    "It sold poorly at first and was rediscovered much later.",
    "It won several prizes in its first year.",
    "Its maker later called it a youthful mistake.",
)
_WRITERS: dict[str, Callable[[Entity, Dice], list[Line]]] = {
    "country": _country,
    "town": _town,
    "river": _river,
    "school": _school,
    "firm": _firm,
    "person": _person,
}
