"""How relations are asked about: as a noun phrase inside a question, and as a question."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ragbench.data.synthetic.world import Cell, Entity


@dataclass(frozen=True)
class Relation:
    """One step of a chain; `{x}` is where the step starts.

    `name` is the relation in `Entity.facts`; a step written "~name:kind" goes backwards, to the
    only entity of that kind whose relation `name` has the value `{x}`. `phrase` is empty where the
    value is no entity.
    """

    name: str
    phrase: str
    question: str


_STEPS = (
    Relation("capital", "the capital of {x}", "What is the capital of {x}?"),
    Relation("currency", "", "What is the currency of {x}?"),
    Relation("language", "", "What is the official language of {x}?"),
    Relation("independence", "", "In which year did {x} become independent?"),
    Relation("country", "the country in which {x} lies", "In which country is {x}?"),
    Relation("river", "the river that flows through {x}", "Which river flows through {x}?"),
    Relation("mayor", "the first mayor of {x}", "Who was the first mayor of {x}?"),
    Relation("charter", "", "In which year was {x} granted its town charter?"),
    Relation("population", "", "What is the population of {x}?"),
    Relation("length", "", "How long is {x}?"),
    Relation("source", "", "On which mountain does {x} rise?"),
    Relation("town", "the town where {x} stands", "In which town is {x}?"),
    Relation("rector", "the first rector of {x}", "Who was the first rector of {x}?"),
    Relation("founded", "", "In which year was {x} founded?"),
    Relation("founder", "the founder of {x}", "Who founded {x}?"),
    Relation("seat", "the town where {x} is based", "In which town is {x} based?"),
    Relation("birthplace", "the town where {x} was born", "Where was {x} born?"),
    Relation("birthdate", "", "When was {x} born?"),
    Relation("deathplace", "the town where {x} died", "Where did {x} die?"),
    Relation("deathdate", "", "When did {x} die?"),
    Relation("university", "the university where {x} studied", "Which university did {x} attend?"),
    Relation("employer", "the firm that {x} worked for", "Which firm did {x} work for?"),
    Relation("wife", "the wife of {x}", "Who was the wife of {x}?"),
    Relation("husband", "the husband of {x}", "Who was the husband of {x}?"),
    Relation("father", "the father of {x}", "Who was the father of {x}?"),
    Relation("mother", "the mother of {x}", "Who was the mother of {x}?"),
    Relation("director", "the director of {x}", "Who directed {x}?"),
    Relation("author", "the author of {x}", "Who wrote {x}?"),
    Relation("singer", "the singer of {x}", "Who recorded {x}?"),
    Relation("studio", "the studio that produced {x}", "Which studio produced {x}?"),
    Relation("publisher", "the publisher of {x}", "Who published {x}?"),
    Relation("label", "the label that released {x}", "Which label released {x}?"),
    Relation("setting", "the town where {x} is set", "In which town is {x} set?"),
    Relation("year", "", "In which year was {x} released?"),
    Relation("~founder:firm", "the firm founded by {x}", "Which firm was founded by {x}?"),
    Relation(
        "~rector:school",
        "the university whose first rector was {x}",
        "Which university had {x} as its first rector?",
    ),
    Relation(
        "~mayor:town",
        "the town whose first mayor was {x}",
        "Which town had {x} as its first mayor?",
    ),
    Relation("~town:school", "the university in {x}", "Which university is in {x}?"),
    Relation("~seat:firm", "the firm based in {x}", "Which firm is based in {x}?"),
    Relation("~director:film", "the film directed by {x}", "Which film was directed by {x}?"),
    Relation("~author:novel", "the novel written by {x}", "Which novel was written by {x}?"),
    Relation("~singer:album", "the album recorded by {x}", "Which album was recorded by {x}?"),
    Relation("~setting:film", "the film set in {x}", "Which film is set in {x}?"),
    Relation("~setting:novel", "the novel set in {x}", "Which novel is set in {x}?"),
    Relation("~father:person:f", "the daughter of {x}", "Who was the daughter of {x}?"),
    Relation("~father:person:m", "the son of {x}", "Who was the son of {x}?"),
)
STEPS: Mapping[str, Relation] = {step.name: step for step in _STEPS}

#: Kinship that a reader must infer: what it is called, and the steps it stands for.
KINSHIP: Mapping[str, tuple[str, ...]] = {
    "paternal grandfather": ("father", "father"),
    "maternal grandfather": ("mother", "father"),
    "paternal aunt": ("father", "father", "~father:person:f"),
    "maternal uncle": ("mother", "father", "~father:person:m"),
}


class Graph:
    """The facts of a cell, walked forwards and backwards."""

    def __init__(self, cell: Cell) -> None:
        self._back: dict[tuple[str, int], list[Entity]] = {}
        for entity in cell.entities:
            for name, value in entity.facts.items():
                if isinstance(value, Entity):
                    kinds = [entity.kind]
                    if entity.kind == "person":
                        kinds.append(f"person:{entity.details['sex']}")
                    for kind in kinds:
                        self._back.setdefault((f"~{name}:{kind}", id(value)), []).append(entity)

    def step(self, at: Entity, name: str) -> tuple[Entity | str, Entity] | None:
        """The value one step from `at`, and the entity whose passage states it.

        None where there is no such fact, or, backwards, more than one.
        """
        if name.startswith("~"):
            subjects = self._back.get((name, id(at)), [])
            return (subjects[0], subjects[0]) if len(subjects) == 1 else None
        value = at.facts.get(name)
        return None if value is None else (value, at)

    def steps(self, at: Entity, *, backwards: bool) -> Iterator[str]:
        """The names of the steps that can be taken from `at`, forwards and, if wanted, back."""
        yield from at.facts
        if backwards:
            for name in STEPS:
                if name.startswith("~") and self.step(at, name) is not None:
                    yield name
