"""Passages of the fictional world: one per entity, three to six sentences.

A sentence is a template whose fields are relations and details of the entity: each fact stands in
one sentence of its subject's passage, and the fields say in which.
"""

import re
from string import Formatter
from typing import NamedTuple

from ragbench.data.passages import from_sentences
from ragbench.data.synthetic.world import FIRM, MAKER, Dice, Entity
from ragbench.passages import Passage

#: What dice choose in a template: one of `[this|that]`, or a whole number of `[2..9]`.
_CHOICE = re.compile(r"\[(.*?)\]")
#: A sentence a line; a blank one is left out.
_TEMPLATES = {
    "country": """
{name}, officially the {alias}, is a \
[country whose capital is|small country governed from its capital,] {capital}.
Its official language is {language} and its currency is the {currency}.
The country became independent in {independence}.
[Most of its land is farmed.|Its coast is known for heavy fog.|]
""",
    "town": """
{name} is a town in {country}, on the banks of {river}.
It has a population of {population}.
It was granted its town charter in {charter}, and its first mayor was {mayor}.
The town has long been known for its [glass|wool|clocks|paper|salt|cider].
""",
    "river": """
The {name} is a river that ends in {mouth}.
It rises on {source}.
The river is {length} long.
[It freezes in most winters.|Barges use its lower course.|]
""",
    "school": """
{name} ({alias}) is a university in {town}.
It was founded in {founded}, with {rector} as its first rector.
Its library holds [20..900] thousand volumes.
""",
    "firm": """
{name}, formally the {alias}, is {a} {people} {industry} based in {seat}.
[It was founded in {founded} by {founder}.|{Founder} founded it in {founded}.]
At its height it employed [2..90] hundred people.
[Its archive was lost in a fire.|It changed hands several times.|]
""",
}
_RECEPTION = (
    "[Critics were divided when it first appeared."
    "|It sold poorly at first and was rediscovered much later."
    "|It won several prizes in its first year."
    "|Its maker later called it a youthful mistake.]"
)


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
    values["a"] = "an" if values.get("people", "")[:1] in [*"AEIOU"] else "a"
    stated = dict[str, int]()
    sentences = list[str]()
    if entity.kind == "person":
        templates = _person(entity)
    elif entity.kind in MAKER:
        templates = _work(entity, dice)
    else:
        templates = _TEMPLATES[entity.kind].strip().splitlines()

    def chosen(match: re.Match[str]) -> str:
        low, dash, high = match[1].partition("..")
        if dash:
            return str(dice.between(int(low), int(high)))
        options: list[str] = match[1].split("|")
        return dice.pick(options)

    for written in templates:
        template = _CHOICE.sub(chosen, written)
        if not template:
            continue
        for _, field, _, _ in Formatter().parse(template):
            relation = (field or "").lower()
            if relation in facts:
                stated[relation] = len(sentences)
        sentences.append(template.format_map(values))
    return Rendered(from_sentences(entity.title, sentences), stated)


def _person(e: Entity) -> list[str]:
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
        work = " and later worked for {employer}" if "employer" in e.facts else ""
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
        _RECEPTION,
    ]
