"""Render passages of the fictional world: one per entity, three to six sentences.

A sentence is a template. Its fields are relations and details of the entity. Each fact is in one
sentence of its subject's passage, and the fields determine the sentence.
"""

import re
from string import Formatter
from typing import NamedTuple

from ragbench.data.passages import from_sentences
from ragbench.data.synthetic.world import MAKER, Entity, SeededRandom
from ragbench.passages import Passage

#: Random choice in a template: one of `[this|that]`, or a whole number of `[2..9]`.
_CHOICE = re.compile(r"\[(.*?)\]")
#: Clause that is omitted if the entity lacks one of its fields.
_OPTIONAL = re.compile(r"<(.*?)>")
_GENRES = ("comic", "historical", "romantic", "experimental")
_PRONOUNS = {"m": ("He", "he", "son"), "f": ("She", "she", "daughter")}
#: A sentence a line. A blank one, and one with a field that the entity lacks, is left out. `!field`
#: needs an entity without the field, `~` a passage of fewer than four sentences.
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
    "person": """
{alias} ({birthdate} \u2013 {deathdate}) was a {people} {trade}.
!deathdate {alias} (born {birthdate}) is a {people} {trade}.
{He} was born in {birthplace}<, the {child} of {father}>< and {mother}>.
{He} studied at {university}< and later worked for {employer}>.
In {married} {he} married {wife}.
In {married} {he} married {husband}.
{He} died in {deathplace}.
~{He} kept a diary for most of a long life.
""",
    "film": """
[{name} is {a} {genre} film directed by {director} and released in {year}.\
|{name} is a {year} {genre} film directed by {director}.]
It was produced by {studio}.
The story is set in {setting}.
RECEPTION
""",
    "novel": """
[{name} is {a} {genre} novel written by {author} and released in {year}.\
|{name} is a {year} {genre} novel written by {author}.]
It was published by {publisher}.
The story is set in {setting}.
RECEPTION
""",
    "album": """
[{name} is {a} {genre} album recorded by {singer} and released in {year}.\
|{name} is a {year} {genre} album recorded by {singer}.]
It was released by {label}.
RECEPTION
""",
}
_RECEPTION = (
    "[Critics were divided when it first appeared."
    "|It sold poorly at first and was rediscovered much later."
    "|It won several prizes in its first year."
    "|Its maker later called it a youthful mistake.]"
)


class Rendered(NamedTuple):
    """Passage, and the index of the sentence that states each relation of its entity."""

    passage: Passage
    stated: dict[str, int]


def render(entity: Entity, dice: SeededRandom) -> Rendered:
    """Render the passage of an entity.

    Args:
        entity: Entity.
        dice: Source of randomness for the wording.
    """
    facts = {}
    for relation, value in entity.facts.items():
        facts[relation] = value.mention if isinstance(value, Entity) else value
    values = {**entity.details, **facts, **_wording(entity, facts, dice)}
    stated = dict[str, int]()
    sentences = list[str]()

    def chosen(match: re.Match[str]) -> str:
        low, dash, high = match[1].partition("..")
        if dash:
            return str(dice.between(int(low), int(high)))
        options: list[str] = match[1].split("|")
        return dice.pick(options)

    for line in _TEMPLATES[entity.kind].replace("RECEPTION", _RECEPTION).strip().splitlines():
        template = _CHOICE.sub(chosen, line)
        if template.startswith("~"):
            template = template[1:] if len(sentences) < 4 else ""
        elif template.startswith("!"):
            absent, _, template = template[1:].partition(" ")
            template = "" if absent in values else template
        template = _OPTIONAL.sub(
            lambda match: match[1] if _fits(match[1], values) else "", template
        )
        if not template or not _fits(template, values):
            continue
        for name in _fields(template):
            if name.lower() in facts:
                stated[name.lower()] = len(sentences)
        sentences.append(template.format_map(values))
    return Rendered(from_sentences(entity.title, sentences), stated)


def _wording(entity: Entity, facts: dict[str, str], dice: SeededRandom) -> dict[str, str]:
    """Return the template fields that are neither relations nor details."""
    founder = facts.get("founder", "")
    described = entity.details.get("people", "")
    wording = {"name": entity.name, "Founder": founder[:1].upper() + founder[1:]}
    wording["alias"] = entity.aliases[0] if entity.aliases else ""
    if entity.kind in MAKER:
        wording["genre"] = described = dice.pick(_GENRES)
    if sex := entity.details.get("sex"):
        wording["He"], wording["he"], wording["child"] = _PRONOUNS[sex]
    wording["a"] = "an" if described[:1] in [*"AEIOUe"] else "a"
    return wording


def _fields(template: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def _fits(template: str, values: dict[str, str]) -> bool:
    """Return True if the entity has every field of the template."""
    return all(name in values for name in _fields(template))
