"""REAP's plan as plain data: plans are checked, placeholders filled, look-ups chosen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, Protocol

from ragbench.data import question_key
from ragbench.signatures import PlanAction, SubTask

_PLACEHOLDER = re.compile(r"\{\s*([\w.-]+)\s*\}")


class MalformedPlanError(Exception):
    """A plan that cannot be followed; the round that made it is rolled back."""


class LookUp(NamedTuple):
    """One query for one requirement of the plan."""

    requirement: str
    text: str
    query: str


class Fact(Protocol):
    """What a placeholder is filled with: a statement on a requirement."""

    @property
    def statement(self) -> str:
        """The statement."""

    @property
    def requirement(self) -> str:
        """The id of its requirement."""


def checked(plan: Sequence[SubTask]) -> list[SubTask]:
    """`plan`, if its ids differ and its dependencies make no circle; unknown ones are dropped.

    Raises:
        MalformedPlanError: otherwise, or if it is empty or a question is blank.
    """
    ids = [task.id for task in plan]
    if not plan or len(set(ids)) < len(ids) or not all(t.question.strip() for t in plan):
        raise MalformedPlanError("empty, blank or repeated requirements")
    tasks = [
        task.model_copy(update={"depends_on": [d for d in task.depends_on if d in ids]})
        for task in plan
    ]
    try:
        TopologicalSorter({task.id: task.depends_on for task in tasks}).prepare()
    except CycleError as error:
        raise MalformedPlanError(f"requirements wait for each other: {error.args[1]}") from None
    return tasks


def filled(text: str, facts: Sequence[Fact], *, most: int) -> list[str]:
    """`text` with each {id} replaced by what is known of that requirement.

    A requirement with several facts forks the text, into `most` at the most; of one with none, the
    placeholder goes.
    """
    match = _PLACEHOLDER.search(text)
    if match is None:
        return [" ".join(text.split())]
    values = [f.statement.rstrip(". ") for f in facts if f.requirement == match[1]] or [""]
    forks = [
        fork
        for value in values
        for fork in filled(text[: match.start()] + value + text[match.end() :], facts, most=most)
    ]
    return forks[:most]


def explained(text: str, facts: Sequence[Fact]) -> str:
    """`text`, followed by all that is known of each {id} in it; one of which nothing is goes.

    A statement in the place of its {id} would make no sentence, as a query need not be.
    """
    known: dict[str, list[str]] = {}
    for match in _PLACEHOLDER.finditer(text):
        said = [f.statement.rstrip(". ") for f in facts if f.requirement == match[1]]
        known[match[1]] = said
    plain = _PLACEHOLDER.sub(lambda match: match[0] if known[match[1]] else "", text)
    notes = [f"{{{of}}}: {'; '.join(said)}" for of, said in known.items() if said]
    return " ".join(f"{plain} ({', '.join(notes)})".split() if notes else plain.split())


def look_ups(
    actions: Sequence[PlanAction],
    plan: Sequence[SubTask],
    facts: Sequence[Fact],
    searched: Sequence[str],
    *,
    most: int,
) -> tuple[list[LookUp], Counter[str]]:
    """What `actions` look up, placeholders filled from `facts`, and events to be counted.

    Queries like those `searched` are refused. An action for an unknown requirement keeps its query,
    which then is its requirement's text.
    """
    texts = {task.id: task.question for task in plan}
    tried = set(map(question_key, searched))
    chosen: list[LookUp] = []
    events: Counter[str] = Counter()
    for action in actions:
        for query in filled(action.query, facts, most=most):
            key = question_key(query)
            if not key:
                continue
            if key in tried:
                events["repeated_query"] += 1
                continue
            tried.add(key)
            events["unknown_requirement"] += action.requirement_id not in texts
            text = explained(texts.get(action.requirement_id, query), facts)
            chosen.append(LookUp(action.requirement_id, text, query))
    events["cut_actions"] += max(len(chosen) - most, 0)
    return chosen[:most], +events


def next_actions(plan: Sequence[SubTask], facts: Sequence[Fact]) -> list[PlanAction]:
    """One action per requirement that is open and waits for no other, asked in its own words."""
    met = {fact.requirement for fact in facts}
    ready = [
        task
        for task in plan
        if task.status == "open" and task.id not in met and met.issuperset(task.depends_on)
    ]
    return [PlanAction(requirement_id=task.id, query=task.question) for task in ready]


def listed(plan: Sequence[SubTask]) -> list[str]:
    """The requirements as a planner sees them, one line each."""
    return [
        f"{task.id}: {task.question}"
        + (f" (after {', '.join(task.depends_on)})" if task.depends_on else "")
        + (f" ({task.status})" if task.status != "open" else "")
        for task in plan
    ]
