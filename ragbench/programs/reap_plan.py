"""REAP's plan and facts as plain data: plans are checked, placeholders filled, facts read back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from ragbench.data.base import question_key
from ragbench.programs.trace import Trace
from ragbench.signatures.types import PlanAction, SubTask

_ASKS = frozenset(["who", "whom", "whose", "which", "what", "where", "when", "why", "how"])
_PLACEHOLDER = re.compile(r"\{\s*([\w.-]+)\s*\}")


class MalformedPlanError(Exception):
    """A plan that cannot be followed; the round that made it is rolled back."""


class LookUp(NamedTuple):
    """One query for one requirement of the plan."""

    requirement: str
    text: str
    query: str


@dataclass(frozen=True)
class Known:
    """A fact as the program keeps it: with the passages that prove it instead of their numbers."""

    statement: str
    level: str
    requirement: str = ""
    pids: tuple[str, ...] = ()


def known_facts(trace: Trace, *, partial: bool = True) -> list[Known]:
    """The facts found so far, once per requirement, without failed look-ups.

    `partial` False leaves partial facts out too.
    """
    found: dict[tuple[str, str], Known] = {}
    for step in trace.steps:
        if step.action == "extract":
            for fact in step.notes["facts"]:
                known = Known(fact["statement"], fact["level"], fact["requirement"], fact["pids"])
                if known.level == "direct" or (partial and known.level == "partial"):
                    found.setdefault((known.requirement, question_key(known.statement)), known)
    return list(found.values())


def says_again(statement: str, asked: str) -> bool:
    """Whether `statement` is `asked` again, or adds no word to a question for something.

    A yes/no question has no such word: its facts may well be made of its own words.
    """
    said, words = question_key(statement).split(), question_key(asked).split()
    return said == words or (not _ASKS.isdisjoint(words) and set(said) <= set(words))


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


def filled(text: str, facts: Sequence[Known], *, most: int) -> list[str]:
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


def look_ups(
    actions: Sequence[PlanAction],
    plan: Sequence[SubTask],
    facts: Sequence[Known],
    trace: Trace,
    *,
    most: int,
) -> list[LookUp]:
    """What `actions` look up, placeholders filled from `facts`; queries tried before are refused.

    An action for an unknown requirement keeps its query, which then is its requirement's text.
    """
    texts = {task.id: task.question for task in plan}
    tried = {question_key(search.query) for search in trace.searches}
    chosen: list[LookUp] = []
    for action in actions:
        for query in filled(action.query, facts, most=most):
            key = question_key(query)
            if not key:
                continue
            if key in tried:
                trace.count("repeated_query")
                continue
            tried.add(key)
            if action.requirement_id not in texts:
                trace.count("unknown_requirement")
            text = filled(texts.get(action.requirement_id, query), facts, most=1)[0]
            chosen.append(LookUp(action.requirement_id, text, query))
    if len(chosen) > most:
        trace.count("cut_actions", len(chosen) - most)
    return chosen[:most]


def next_actions(plan: Sequence[SubTask], facts: Sequence[Known]) -> list[PlanAction]:
    """One action per requirement that is open and waits for no other, asked in its own words."""
    met = {fact.requirement for fact in facts}
    ready = [
        task
        for task in plan
        if task.status == "open" and task.id not in met and met.issuperset(task.depends_on)
    ]
    return [PlanAction(requirement_id=task.id, query=task.question) for task in ready]
