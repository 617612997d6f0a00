"""Generate questions over a cell, with one answer, gold passages and a decomposition."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ragbench.data.synthetic.world import MAKER, Entity, SeededRandom

#: Number of each kind in 20 questions. A tenth are yes/no questions, half of them "yes".
DECK = (
    *(["compositional"] * 6 + ["bridge"] * 5 + ["inference"] * 3),
    *(["comparison"] * 2 + ["bridge_comparison"] * 2 + ["yes", "no"]),
)
_TRIES = 400

#: One step of a chain per line: its name, its question and, if its value is an entity, a phrase for
#: the value inside a question. {x} is the start. The name is a relation in `Entity.facts`.
#: "~name:kind" is the reverse: the only entity of that kind whose relation has the value {x}.
_TABLE = """
capital | What is the capital of {x}? | the capital of {x}
currency | What is the currency of {x}?
language | What is the official language of {x}?
independence | In which year did {x} become independent?
country | In which country is {x}? | the country in which {x} lies
river | Which river flows through {x}? | the river that flows through {x}
mayor | Who was the first mayor of {x}? | the first mayor of {x}
charter | In which year was {x} granted its town charter?
population | What is the population of {x}?
length | How long is {x}?
source | On which mountain does {x} rise?
town | In which town is {x}? | the town where {x} stands
rector | Who was the first rector of {x}? | the first rector of {x}
founded | In which year was {x} founded?
founder | Who founded {x}? | the founder of {x}
seat | In which town is {x} based? | the town where {x} is based
birthplace | Where was {x} born? | the town where {x} was born
birthdate | When was {x} born?
deathplace | Where did {x} die? | the town where {x} died
deathdate | When did {x} die?
university | Which university did {x} attend? | the university where {x} studied
employer | Which firm did {x} work for? | the firm that {x} worked for
wife | Who was the wife of {x}? | the wife of {x}
husband | Who was the husband of {x}? | the husband of {x}
father | Who was the father of {x}? | the father of {x}
mother | Who was the mother of {x}? | the mother of {x}
director | Who directed {x}? | the director of {x}
author | Who wrote {x}? | the author of {x}
singer | Who recorded {x}? | the singer of {x}
studio | Which studio produced {x}? | the studio that produced {x}
publisher | Who published {x}? | the publisher of {x}
label | Which label released {x}? | the label that released {x}
setting | In which town is {x} set? | the town where {x} is set
year | In which year was {x} released?
~founder:firm | Which firm was founded by {x}? | the firm founded by {x}
~rector:school | Which university had {x} as its first rector? | the university whose first rector was {x}
~mayor:town | Which town had {x} as its first mayor? | the town whose first mayor was {x}
~town:school | Which university is in {x}? | the university in {x}
~seat:firm | Which firm is based in {x}? | the firm based in {x}
~director:film | Which film was directed by {x}? | the film directed by {x}
~author:novel | Which novel was written by {x}? | the novel written by {x}
~singer:album | Which album was recorded by {x}? | the album recorded by {x}
~setting:film | Which film is set in {x}? | the film set in {x}
~setting:novel | Which novel is set in {x}? | the novel set in {x}
~father:person:f | Who was the daughter of {x}? | the daughter of {x}
~father:person:m | Who was the son of {x}? | the son of {x}
"""  # noqa: E501


def _rows(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().splitlines()]


_QUESTIONS = {name: question for name, question, *_ in _rows(_TABLE)}
_PHRASES = {name: phrase for name, _, *named in _rows(_TABLE) for phrase in named}

#: Kinship that a reader must infer: its name, and its steps.
_KINSHIP = _rows("""
paternal grandfather | father father
maternal grandfather | mother father
paternal aunt | father father ~father:person:f
maternal uncle | mother father ~father:person:m
""")
#: Two steps that are equivalent to one step that the first passage states.
_SHORTCUTS = """
father wife
mother husband
wife husband
husband wife
~father:person:m father
~father:person:f father
town ~town:school
seat ~seat:firm
setting ~setting:film
setting ~setting:novel
""".splitlines()
#: Comparisons of two entities of one kind by the end of a path: kind, path, and the questions for
#: the lower and for the higher value.
_CONTESTS = _rows("""
person | birthdate | Who was born first, {}? | Who was born later, {}?
film | year | Which film was released first, {}? | Which film is newer, {}?
novel | year | Which novel came out first, {}? | Which novel is newer, {}?
firm | founded | Which firm was founded first, {}? | Which firm is younger, {}?
town | population | Which town has fewer inhabitants, {}? | Which town has more inhabitants, {}?
""")
_BRIDGED = _rows("""
film | director birthdate | Which film has the director who was born first, {}? | Which film has the director who was born later, {}?
novel | author birthdate | Which novel has the author who was born first, {}? | Which novel has the author who was born later, {}?
firm | founder birthdate | Which firm has the founder who was born first, {}? | Which firm has the founder who was born later, {}?
""")  # noqa: E501
#: Yes/no: kind, path, and the question.
_SAME = _rows("""
person | birthplace | Were {} and {} born in the same town?
person | university | Did {} and {} attend the same university?
firm | seat | Are {} and {} based in the same town?
town | river | Do {} and {} lie on the same river?
film | director birthplace | Were the directors of {} and {} born in the same town?
""")


class Graph:
    """Facts of a cell, followed forwards and backwards."""

    def __init__(self, entities: Sequence[Entity]) -> None:
        self.entities = entities
        self._back: dict[tuple[str, int], list[Entity]] = {}
        for entity in entities:
            kinds = [entity.kind, f"person:{entity.details.get('sex')}"]
            for name, value in entity.facts.items():
                for kind in kinds if isinstance(value, Entity) else ():
                    self._back.setdefault((f"~{name}:{kind}", id(value)), []).append(entity)

    def step(self, at: Entity, name: str) -> tuple[Entity | str, Entity] | None:
        """Follow one step.

        Args:
            at: Entity at the start.
            name: Relation, or `~relation:kind` for the reverse.

        Returns:
            The value and the entity whose passage states it. None if there is no such fact, or if a
            reverse step has more than one result.
        """
        if name.startswith("~"):
            subjects = self._back.get((name, id(at)), [])
            return (subjects[0], subjects[0]) if len(subjects) == 1 else None
        value = at.facts.get(name)
        return None if value is None else (value, at)

    def steps(self, at: Entity, *, back: bool) -> Iterator[str]:
        """Yield the names of the steps that start at an entity.

        Args:
            at: Entity.
            back: Include reverse steps.
        """
        yield from at.facts
        for name in _QUESTIONS if back else ():
            if name.startswith("~") and self.step(at, name) is not None:
                yield name


@dataclass(frozen=True)
class Hop:
    """One required fact: its subject and relation, and the question about it."""

    subject: Entity
    relation: str
    question: str
    answer: str


@dataclass(frozen=True)
class GeneratedQuestion:
    """Question with its answers. `logic` describes it in terms of facts."""

    question: str
    answers: tuple[str, ...]
    qtype: str
    hops: tuple[Hop, ...]
    logic: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Key of the facts, shared by opposite questions ("which is first, A or B")."""
        start = self.logic.get("start") or sorted(self.logic["items"])
        return json.dumps([start, self.logic["path"]])

    @property
    def gold(self) -> list[Entity]:
        """Entities whose passages are needed, in order."""
        return list(dict.fromkeys(hop.subject for hop in self.hops))


def ask(graph: Graph, kind: str, dice: SeededRandom) -> GeneratedQuestion | None:
    """Generate a question.

    Args:
        graph: Facts of the cell.
        kind: Kind of question, see `DECK`.
        dice: Source of randomness.

    Returns:
        The question, or None if no attempt succeeded.
    """
    for _ in range(_TRIES):
        question = _MAKERS[kind](graph, dice)
        if question is not None and 2 <= len(question.gold) <= 4:
            return question
    return None


def _spellings(value: Entity | str) -> tuple[str, ...]:
    """Return the spellings of an answer, starting with the one in the passages."""
    if isinstance(value, Entity):
        spellings = [value.name, *value.aliases, value.title]
        if value.kind == "river":
            spellings.append(value.name.removesuffix(" River"))
        return tuple(dict.fromkeys(spellings))
    if date := re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", value):
        return value, f"{date[2]} {date[1]}, {date[3]}"
    if value.endswith(" kilometres"):
        number = value.removesuffix(" kilometres")
        return value, f"{number} km", f"{number} kilometers"
    if re.fullmatch(r"[\d,]+,\d{3}", value):
        return (value, value.replace(",", ""))
    return (value,)


def _walk(graph: Graph, start: Entity, path: Sequence[str]) -> tuple[list[Hop], Any] | None:
    """Return the facts along `path` and its end. None if it breaks, loops or has a shortcut."""
    at: Entity | str = start
    seen = {id(start)}
    hops: list[Hop] = []
    for before, name in zip(("", *path), path, strict=False):
        if not isinstance(at, Entity) or f"{before} {name}" in _SHORTCUTS:
            return None
        taken = graph.step(at, name)
        if taken is None or id(taken[0]) in seen:
            return None
        value, subject = taken
        seen.add(id(value))
        answer = value.name if isinstance(value, Entity) else value
        relation = name.strip("~").partition(":")[0]
        hops.append(Hop(subject, relation, _QUESTIONS[name].format(x=at.mention), answer))
        at = value
    return hops, at


def _phrase(start: Entity, path: Sequence[str]) -> str:
    phrase = start.mention
    for name in path:
        phrase = _PHRASES[name].format(x=phrase)
    return phrase


def _chain(
    graph: Graph, start: Entity, path: Sequence[str], qtype: str, question: str = ""
) -> GeneratedQuestion | None:
    """Return the question about the end of `path`. None if it contains its own answer."""
    walked = _walk(graph, start, path)
    if walked is None:
        return None
    if not question:
        if any(name not in _PHRASES for name in path[:-1]):
            return None
        question = _QUESTIONS[path[-1]].format(x=_phrase(start, path[:-1]))
    hops, end = walked
    answers = _spellings(end)
    if answers[0] in question:  # For example, a grandson with his grandfather's name.
        return None
    logic = {"form": "chain", "start": start.title, "path": list(path)}
    return GeneratedQuestion(question, answers, qtype, tuple(hops), logic)


def _random_path(
    graph: Graph, start: Entity, length: int, dice: SeededRandom, back: bool
) -> list[str]:
    path: list[str] = []
    at: Entity | str = start
    while len(path) < length and isinstance(at, Entity):
        is_last = len(path) == length - 1
        steps = [n for n in graph.steps(at, back=back) if is_last or n in _PHRASES]
        if not steps:
            break
        path.append(dice.pick(steps))
        taken = graph.step(at, path[-1])
        at = taken[0] if taken else ""
    return path


def _random_chain(
    graph: Graph, dice: SeededRandom, *, qtype: str, lengths: Sequence[int], back: bool
) -> GeneratedQuestion | None:
    """Return a chain from a random entity. `back` requires a reverse step, but no kinship.

    A reverse step describes an entity that must be found first. Kinship belongs to inference.
    """
    start = dice.pick(graph.entities)
    path = _random_path(graph, start, dice.pick(lengths), dice, back)
    is_back = any(name.startswith("~") for name in path)
    if len(path) < 2 or (back and (not is_back or any("person" in name for name in path))):
        return None
    return _chain(graph, start, path, qtype)


def _inference(graph: Graph, dice: SeededRandom) -> GeneratedQuestion | None:
    """Return a question about a kinship that no passage states.

    It starts at a person or at the maker of a work, and asks for the relative or a fact about the
    relative.
    """
    start = dice.pick(graph.entities)
    lead = [MAKER[start.kind]] if start.kind in MAKER else []
    person = start.facts[lead[0]] if lead else start
    assert isinstance(person, Entity)
    kin, path = dice.pick(_KINSHIP)
    if dice.below(3) == 0:
        kin = "father-in-law"
        path = "wife father" if "wife" in person.facts else "husband father"
    tail = dice.pick(([], [], ["birthplace"], ["birthdate"], ["deathdate"]))
    if person.kind != "person":
        return None
    relative = f"the {kin} of {_phrase(start, lead)}"
    template = _QUESTIONS[tail[0]] if tail else "Who is {x}?"
    question = template.format(x=relative)
    return _chain(graph, start, [*lead, *path.split(), *tail], "inference", question)


_Sides = tuple[tuple[Entity, Entity], tuple[Hop, ...], tuple[Any, Any]]


def _two(graph: Graph, kind: str, path: Sequence[str], dice: SeededRandom) -> _Sides | None:
    """Return two entities with distinct names and disjoint paths to the ends of `path`."""
    # A mention with a year would give the answer away.
    those = [e for e in graph.entities if e.kind == kind and not re.search(r"\d", e.mention)]
    a = dice.pick(those)
    b = dice.pick(those)
    if a is b or a.name == b.name:
        return None
    walk_of_a = _walk(graph, a, path)
    walk_of_b = _walk(graph, b, path)
    if walk_of_a is None or walk_of_b is None:
        return None
    hops = (*walk_of_a[0], *walk_of_b[0])
    if len({hop.subject for hop in hops}) < len(hops):
        return None
    return (a, b), hops, (walk_of_a[1], walk_of_b[1])


def _contest(
    graph: Graph, dice: SeededRandom, *, among: list[list[str]], qtype: str
) -> GeneratedQuestion | None:
    kind, steps, lower, higher = dice.pick(among)
    path = steps.split()
    if (sides := _two(graph, kind, path, dice)) is None:
        return None
    pair, hops, ends = sides
    # A year, the year of a date, or a number with commas.
    low, high = (int(end.rsplit(" ", 1)[-1].replace(",", "")) for end in ends)
    if low == high:
        return None
    pick = dice.pick(("min", "max"))
    winner = pair[(low < high) != (pick == "min")]
    # "Which novel ..." tells a work from its namesake of another kind.
    contestants = [e.name if e.kind in MAKER else e.mention for e in pair]
    question = (lower if pick == "min" else higher).format(" or ".join(contestants))
    logic = {"form": "contest", "items": [e.title for e in pair], "path": path, "pick": pick}
    return GeneratedQuestion(question, _spellings(winner), qtype, hops, logic)


def _same(graph: Graph, dice: SeededRandom, *, answer: str) -> GeneratedQuestion | None:
    kind, steps, words = dice.pick(_SAME)
    path = steps.split()
    if (sides := _two(graph, kind, path, dice)) is None:
        return None
    pair, hops, ends = sides
    if (ends[0] is ends[1]) != (answer == "yes"):
        return None
    question = words.format(pair[0].mention, pair[1].mention)
    logic = {"form": "same", "items": [e.title for e in pair], "path": path}
    qtype = "comparison" if len(path) == 1 else "bridge_comparison"
    return GeneratedQuestion(question, (answer,), qtype, hops, logic)


_MAKERS: dict[str, Callable[[Graph, SeededRandom], GeneratedQuestion | None]] = {
    "compositional": partial(
        _random_chain, qtype="compositional", lengths=(2, 2, 2, 3, 3, 4), back=False
    ),
    "bridge": partial(_random_chain, qtype="bridge", lengths=(2, 3, 3, 4), back=True),
    "inference": _inference,
    "comparison": partial(_contest, among=_CONTESTS, qtype="comparison"),
    "bridge_comparison": partial(_contest, among=_BRIDGED, qtype="bridge_comparison"),
    "yes": partial(_same, answer="yes"),
    "no": partial(_same, answer="no"),
}
