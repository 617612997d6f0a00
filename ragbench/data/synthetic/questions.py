"""Questions over a cell, each with one answer, the passages it needs and a decomposition."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ragbench.data.synthetic.names import Dice
from ragbench.data.synthetic.relations import KINSHIP, STEPS, Graph
from ragbench.data.synthetic.world import MAKER, Cell, Entity

#: Twenty questions hold this many of each kind; yes/no questions are a tenth, half of them "yes".
DECK = (
    *["compositional"] * 6,
    *["bridge"] * 5,
    *["inference"] * 3,
    *["comparison"] * 2,
    *["bridge_comparison"] * 2,
    *["yes", "no"],
)
_TRIES = 400
#: Two steps that come to the same as one step that the first passage states.
_SHORTCUTS = {
    ("father", "wife"),
    ("mother", "husband"),
    ("wife", "husband"),
    ("husband", "wife"),
    ("~father:person:m", "father"),
    ("~father:person:f", "father"),
    ("town", "~town:school"),
    ("seat", "~seat:firm"),
    ("setting", "~setting:film"),
    ("setting", "~setting:novel"),
}


@dataclass(frozen=True)
class Hop:
    """One fact that is needed: where it stands, and as a question of its own."""

    subject: Entity
    relation: str
    question: str
    answer: str


@dataclass(frozen=True)
class Asked:
    """A question with its answers; `logic` says in terms of facts what is asked."""

    question: str
    answers: tuple[str, ...]
    qtype: str
    hops: tuple[Hop, ...]
    logic: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A key shared by questions on the same facts: which is first, A or B; newer, B or A."""
        start = self.logic.get("start") or sorted(self.logic["items"])
        return json.dumps([start, self.logic["path"]])

    @property
    def gold(self) -> list[Entity]:
        """The entities whose passages are needed, in order."""
        return list(dict.fromkeys(hop.subject for hop in self.hops))


def ask(cell: Cell, graph: Graph, kind: str, dice: Dice) -> Asked | None:
    """A question of `kind` (see `DECK`) over the cell, or None where none was found."""
    for _ in range(_TRIES):
        asked = _MAKERS[kind](cell, graph, dice)
        if asked is not None and 2 <= len(asked.gold) <= 4:
            return asked
    return None


def spellings(value: Entity | str) -> tuple[str, ...]:
    """The ways to write an answer, the one that passages use first."""
    if isinstance(value, Entity):
        names = [value.name, *value.aliases, value.title]
        if value.kind == "river":
            names.append(value.name.removesuffix(" River"))
        return tuple(dict.fromkeys(names))
    date = re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", value)
    if date:
        return value, f"{date[2]} {date[1]}, {date[3]}"
    if value.endswith(" kilometres"):
        number = value.removesuffix(" kilometres")
        return value, f"{number} km", f"{number} kilometers"
    if re.fullmatch(r"[\d,]+,\d{3}", value):
        return value, value.replace(",", "")
    return (value,)


def _walk(graph: Graph, start: Entity, path: Sequence[str]) -> tuple[list[Hop], Any] | None:
    """The facts along `path` and its end; None where it breaks, turns back or is a shortcut."""
    at: Entity | str = start
    seen = {id(start)}
    hops: list[Hop] = []
    for before, name in zip(("", *path), path, strict=False):
        if not isinstance(at, Entity) or (before, name) in _SHORTCUTS:
            return None
        taken = graph.step(at, name)
        if taken is None or id(taken[0]) in seen:
            return None
        value, subject = taken
        seen.add(id(value))
        question = STEPS[name].question.format(x=at.mention)
        answer = value.name if isinstance(value, Entity) else value
        hops.append(Hop(subject, name.strip("~").partition(":")[0], question, answer))
        at = value
    return hops, at


def _phrase(start: Entity, path: Sequence[str]) -> str:
    phrase = start.mention
    for name in path:
        phrase = STEPS[name].phrase.format(x=phrase)
    return phrase


def _chain_of(graph: Graph, start: Entity, path: Sequence[str], qtype: str) -> Asked | None:
    """The question after the end of `path`, if it says nothing of its own answer."""
    walked = _walk(graph, start, path)
    if walked is None or any(not STEPS[name].phrase for name in path[:-1]):
        return None
    hops, end = walked
    question = STEPS[path[-1]].question.format(x=_phrase(start, path[:-1]))
    answers = spellings(end)
    if answers[0] in question:
        return None
    logic = {"form": "chain", "start": start.title, "path": list(path)}
    return Asked(question, answers, qtype, tuple(hops), logic)


def _random_path(graph: Graph, start: Entity, length: int, dice: Dice, back: bool) -> list[str]:
    path: list[str] = []
    at: Entity | str = start
    while len(path) < length and isinstance(at, Entity):
        last = len(path) == length - 1
        names = [n for n in graph.steps(at, backwards=back) if last or STEPS[n].phrase]
        if not names:
            break
        path.append(dice.pick(names))
        taken = graph.step(at, path[-1])
        at = taken[0] if taken else ""
    return path


def _compositional(cell: Cell, graph: Graph, dice: Dice) -> Asked | None:
    start = dice.pick(cell.entities)
    path = _random_path(graph, start, dice.pick((2, 2, 2, 3, 3, 4)), dice, back=False)
    return _chain_of(graph, start, path, "compositional") if len(path) > 1 else None


def _bridge(cell: Cell, graph: Graph, dice: Dice) -> Asked | None:
    """A chain with a step backwards: something is described, and must be found first."""
    start = dice.pick(cell.entities)
    path = _random_path(graph, start, dice.pick((2, 3, 3, 4)), dice, back=True)
    if not any(name.startswith("~") for name in path):
        return None
    if any("person" in name for name in path):
        return None  # kinship is for inference
    return _chain_of(graph, start, path, "bridge")


def _inference(cell: Cell, graph: Graph, dice: Dice) -> Asked | None:
    """Kinship that no passage states, of a person or of the maker of a work.

    What is asked is who the relative is, or a fact about that relative.
    """
    start = dice.pick(cell.entities)
    lead = [MAKER[start.kind]] if start.kind in MAKER else []
    person = start.of(lead[0]) if lead else start
    kin, steps = dice.pick(tuple(KINSHIP.items()))
    if dice.below(3) == 0:
        kin, steps = "father-in-law", ("wife" if "wife" in person.facts else "husband", "father")
    tail = dice.pick(([], [], ["birthplace"], ["birthdate"], ["deathdate"]))
    walked = _walk(graph, start, [*lead, *steps, *tail])
    if person.kind != "person" or walked is None:
        return None
    hops, end = walked
    relative = f"the {kin} of {_phrase(start, lead)}"
    question = STEPS[tail[0]].question.format(x=relative) if tail else f"Who is {relative}?"
    if spellings(end)[0] in question:
        return None  # a grandson with his grandfather's name
    logic = {"form": "chain", "start": start.title, "path": [*lead, *steps, *tail]}
    return Asked(question, spellings(end), "inference", tuple(hops), logic)


@dataclass(frozen=True)
class _Contest:
    """A comparison of two entities of one kind by the end of a path; `words` name the ends."""

    kind: str
    path: tuple[str, ...]
    low: str
    high: str


_CONTESTS = (
    _Contest("person", ("birthdate",), "Who was born first, {}?", "Who was born later, {}?"),
    _Contest("film", ("year",), "Which film was released first, {}?", "Which film is newer, {}?"),
    _Contest("novel", ("year",), "Which novel came out first, {}?", "Which novel is newer, {}?"),
    _Contest(
        "firm", ("founded",), "Which firm was founded first, {}?", "Which firm is younger, {}?"
    ),
    _Contest(
        "town",
        ("population",),
        "Which town has fewer inhabitants, {}?",
        "Which town has more inhabitants, {}?",
    ),
)
_BRIDGED = (
    _Contest(
        "film",
        ("director", "birthdate"),
        "Which film has the director who was born first, {}?",
        "Which film has the director who was born later, {}?",
    ),
    _Contest(
        "novel",
        ("author", "birthdate"),
        "Which novel has the author who was born first, {}?",
        "Which novel has the author who was born later, {}?",
    ),
    _Contest(
        "firm",
        ("founder", "birthdate"),
        "Which firm has the founder who was born first, {}?",
        "Which firm has the founder who was born later, {}?",
    ),
)
#: Yes/no: kind, path, and the question.
_SAME = (
    ("person", ("birthplace",), "Were {} and {} born in the same town?"),
    ("person", ("university",), "Did {} and {} attend the same university?"),
    ("firm", ("seat",), "Are {} and {} based in the same town?"),
    ("town", ("river",), "Do {} and {} lie on the same river?"),
    ("film", ("director", "birthplace"), "Were the directors of {} and {} born in the same town?"),
)


def _comparison(cell: Cell, graph: Graph, dice: Dice) -> Asked | None:
    return _contest(cell, graph, dice, dice.pick(_CONTESTS), "comparison")


def _bridge_comparison(cell: Cell, graph: Graph, dice: Dice) -> Asked | None:
    return _contest(cell, graph, dice, dice.pick(_BRIDGED), "bridge_comparison")


def _two(
    cell: Cell, graph: Graph, kind: str, path: Sequence[str], dice: Dice
) -> tuple[tuple[Entity, Entity], tuple[Hop, ...], tuple[Any, Any]] | None:
    """Two entities of a kind, told apart by name alone, with disjoint ways to the path's ends."""
    # A mention with a year would give the answer away.
    those = [e for e in cell.of_kind(kind) if not re.search(r"\d", e.mention)]
    a, b = dice.pick(those), dice.pick(those)
    if a is b or a.name == b.name:
        return None
    left, right = _walk(graph, a, path), _walk(graph, b, path)
    if left is None or right is None:
        return None
    hops = (*left[0], *right[0])
    if len({hop.subject for hop in hops}) < len(hops):
        return None
    return (a, b), hops, (left[1], right[1])


def _contest(cell: Cell, graph: Graph, dice: Dice, contest: _Contest, qtype: str) -> Asked | None:
    sides = _two(cell, graph, contest.kind, contest.path, dice)
    if sides is None:
        return None
    pair, hops, ends = sides
    low, high = _number(ends[0]), _number(ends[1])
    if low == high:
        return None
    pick = dice.pick(("min", "max"))
    winner = pair[0] if (low < high) == (pick == "min") else pair[1]
    words = contest.low if pick == "min" else contest.high
    # "Which novel ..." tells a work from its namesake of another kind.
    names = [e.name if e.kind in MAKER else e.mention for e in pair]
    question = words.format(" or ".join(names))
    logic = {"form": "contest", "items": [e.title for e in pair], "path": list(contest.path)}
    return Asked(question, spellings(winner), qtype, hops, {**logic, "pick": pick})


def _same(cell: Cell, graph: Graph, dice: Dice, answer: str) -> Asked | None:
    kind, path, words = dice.pick(_SAME)
    sides = _two(cell, graph, kind, path, dice)
    if sides is None:
        return None
    pair, hops, ends = sides
    if (ends[0] is ends[1]) != (answer == "yes"):
        return None
    question = words.format(pair[0].mention, pair[1].mention)
    logic = {"form": "same", "items": [e.title for e in pair], "path": list(path)}
    qtype = "comparison" if len(path) == 1 else "bridge_comparison"
    return Asked(question, (answer,), qtype, hops, logic)


def _number(value: str) -> int:
    """A year, the year of a date, or a number with commas."""
    return int(value.rsplit(" ", 1)[-1].replace(",", ""))


_MAKERS: dict[str, Callable[[Cell, Graph, Dice], Asked | None]] = {
    "compositional": _compositional,
    "bridge": _bridge,
    "inference": _inference,
    "comparison": _comparison,
    "bridge_comparison": _bridge_comparison,
    "yes": partial(_same, answer="yes"),
    "no": partial(_same, answer="no"),
}
