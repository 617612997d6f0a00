"""Passages of the fictional world: one per entity, three to six sentences.

A sentence is a template whose fields are relations and details of the entity: each fact stands in
one sentence of its subject's passage, and the fields say in which.
"""

from collections.abc import Callable
from string import Formatter
from typing import NamedTuple

from ragbench.data.passages import from_sentences
from ragbench.data.synthetic.world import FIRM, MAKER, Dice, Entity
from ragbench.passages import Passage


class Rendered(NamedTuple):
    """A passage, and the index of the sentence that states each relation of its entity."""

    passage: Passage
    stated: dict[str, int]


def render(entity: Entity, dice: Dice) -> Rendered:
    """Returns the passage of `entity`; `dice` choose the wording."""
    facts = {}
    for relation, value in entity.facts.items():
        facts[relation] = value.mention if isinstance(value, Entity) else value
    values = {**entity.details, **facts, "name": entity.name}
    values["alias"] = entity.aliases[0] if entity.aliases else ""
    founder = facts.get("founder", "")
    values["Founder"] = founder[:1].upper() + founder[1:]
    stated = dict[str, int]()
    sentences = list[str]()
    for template in filter(None, _WRITERS.get(entity.kind, _work)(entity, dice)):
        fields = []
        for _, field, _, _ in Formatter().parse(template):
            fields.append((field or "").lower())
        stated.update({field: len(sentences) for field in fields if field in facts})
        sentences.append(template.format_map(values))
    return Rendered(from_sentences(entity.title, sentences), stated)


def _country(e: Entity, dice: Dice) -> list[str]:
    governed = "small country governed from its capital, {capital}"
    phrase = dice.pick(("country whose capital is {capital}", governed))
    return [
        f"{{name}}, officially the {{alias}}, is a {phrase}.",
        "Its official language is {language} and its currency is the {currency}.",
        "The country became independent in {independence}.",
        dice.pick(("Most of its land is farmed.", "Its coast is known for heavy fog.", "")),
    ]


def _town(e: Entity, dice: Dice) -> list[str]:
    trade = dice.pick(("glass", "wool", "clocks", "paper", "salt", "cider"))
    return [
        "{name} is a town in {country}, on the banks of {river}.",
        "It has a population of {population}.",
        "It was granted its town charter in {charter}, and its first mayor was {mayor}.",
        f"The town has long been known for its {trade}.",
    ]


def _river(e: Entity, dice: Dice) -> list[str]:
    return [
        "The {name} is a river that ends in {mouth}.",
        "It rises on {source}.",
        "The river is {length} long.",
        dice.pick(("It freezes in most winters.", "Barges use its lower course.", "")),
    ]


def _school(e: Entity, dice: Dice) -> list[str]:
    return [
        "{name} ({alias}) is a university in {town}.",
        "It was founded in {founded}, with {rector} as its first rector.",
        f"Its library holds {dice.between(20, 900)} thousand volumes.",
    ]


def _firm(e: Entity, dice: Dice) -> list[str]:
    a = "an" if e.details["people"][0] in "AEIOU" else "a"
    founded = "It was founded in {founded} by {founder}.", "{Founder} founded it in {founded}."
    return [
        f"{{name}}, formally the {{alias}}, is {a} {{people}} {{industry}} based in {{seat}}.",
        dice.pick(founded),
        f"At its height it employed {dice.between(2, 90)} hundred people.",
        dice.pick(("Its archive was lost in a fire.", "It changed hands several times.", "")),
    ]


def _person(e: Entity, dice: Dice) -> list[str]:
    he, child = ("He", "son") if e.details["sex"] == "m" else ("She", "daughter")
    parents = " and ".join(f"{{{parent}}}" for parent in ("father", "mother") if parent in e.facts)
    dead = "deathdate" in e.facts
    lines = [
        "{alias} ({birthdate} \u2013 {deathdate}) was a {people} {trade}."
        if dead
        else "{alias} (born {birthdate}) is a {people} {trade}.",
        f"{he} was born in {{birthplace}}{f', the {child} of {parents}' if parents else ''}.",
    ]
    if "university" in e.facts:
        if "employer" in e.facts:
            work = " and later worked for {employer}"
        else:
            work = ""
        lines.append(f"{he} studied at {{university}}{work}.")
    for spouse in ("wife", "husband"):
        if spouse in e.facts:
            lines.append(f"In {{married}} {he.lower()} married {{{spouse}}}.")
    if dead:
        lines.append(f"{he} died in {{deathplace}}.")
    if len(lines) < 4:
        lines.append(f"{he} kept a diary for most of a long life.")
    return lines


def _work(e: Entity, dice: Dice) -> list[str]:
    maker = MAKER[e.kind]
    genre = dice.pick(("comic", "historical", "romantic", "experimental"))
    a = "an" if genre[0] == "e" else "a"
    verb = {"film": "directed", "novel": "written", "album": "recorded"}[e.kind]
    role = {"film": "produced", "novel": "published", "album": "released"}[e.kind]
    openings = (
        f"{{name}} is {a} {genre} {e.kind} {verb} by {{{maker}}} and released in {{year}}.",
        f"{{name}} is a {{year}} {genre} {e.kind} {verb} by {{{maker}}}.",
    )
    return [
        dice.pick(openings),
        f"It was {role} by {{{FIRM[e.kind]}}}.",
        "The story is set in {setting}." if "setting" in e.facts else "",
        dice.pick(_RECEPTION),
    ]


_RECEPTION = (
    "Critics were divided when it first appeared.",
    "It sold poorly at first and was rediscovered much later.",
    "It won several prizes in its first year.",
    "Its maker later called it a youthful mistake.",
)
_WRITERS: dict[str, Callable[[Entity, Dice], list[str]]] = {
    "country": _country,
    "town": _town,
    "river": _river,
    "school": _school,
    "firm": _firm,
    "person": _person,
}
