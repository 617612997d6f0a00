"""Entities and relations of many texts made one graph, as GraphRAG merges them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.retrievers.graph.local_search import Link, Node

#: A strength that no sum of them makes infinite.
_STRONGEST = 1e6


@dataclass
class Draft:
    """The entities and relations extracted from one text.

    Entities are (name, type, description); relations (source, target, description, strength).
    """

    entities: list[tuple[str, str, str]] = field(default_factory=list)
    relations: list[tuple[str, str, str, float]] = field(default_factory=list)

    @property
    def known(self) -> list[str]:
        """The names of the entities so far, then the pairs of related ones.

        Unseen, a relation is listed again by the next call: its weight would count twice, and its
        two descriptions would take a call to merge.
        """
        names = [name for name, _, _ in self.entities]
        pairs = [f"{source} - {target}" for source, target, _, _ in self.relations]
        return list(dict.fromkeys([*names, *pairs]))

    def add(self, values: Mapping[str, Any]) -> None:
        """Add the fields of a reply."""
        for entity in values.get("entities") or []:
            name = clean_name(entity.get("name"))
            if name:
                self.entities.append((name, clean_name(entity.get("type")), description_of(entity)))
        for relation in values.get("relations") or []:
            ends = clean_name(relation.get("source")), clean_name(relation.get("target"))
            if all(ends) and ends[0] != ends[1]:
                weight = strength(relation.get("strength"))
                self.relations.append((*ends, description_of(relation), weight))


def strength(told: Any) -> float:
    """How strong a relation is by a reply, which should say 1 to 10; 1 where it says no number."""
    if isinstance(told, int | float) and math.isfinite(told):
        return float(min(max(told, 0.0), _STRONGEST))
    return 1.0


@dataclass(frozen=True)
class Merged:
    """A graph; `described` are the names and distinct descriptions of its nodes, then its links."""

    nodes: list[Node]
    links: list[Link]
    described: list[tuple[str, list[str]]]


def merged(drafts: Sequence[Draft]) -> Merged:
    """The graph of the texts, by position; nodes by name and type, so that no order matters.

    A name of several types ends relations at the type that most texts give it.
    """
    nodes: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for unit, draft in enumerate(drafts):
        for name, kind, text in draft.entities:
            nodes.setdefault((name, kind), []).append((unit, text))
    keys = sorted(nodes)
    usual: dict[str, int] = {}
    for position, key in enumerate(keys):
        held = usual.setdefault(key[0], position)
        if len(nodes[key]) > len(nodes[keys[held]]):
            usual[key[0]] = position
    links: dict[tuple[int, int], list[tuple[int, str, float]]] = {}
    for unit, draft in enumerate(drafts):
        for source, target, text, weight in draft.relations:
            if source in usual and target in usual:
                ends = (usual[source], usual[target])
                links.setdefault(ends, []).append((unit, text, weight))
    pairs = sorted(links)
    return Merged(
        [Node(*key, "", _units(nodes[key])) for key in keys],
        [
            Link(*pair, "", sum(weight for _, _, weight in links[pair]), _units(links[pair]))
            for pair in pairs
        ],
        [(key[0], _distinct(nodes[key])) for key in keys]
        + [(f"{keys[a][0]} - {keys[b][0]}", _distinct(links[a, b])) for a, b in pairs],
    )


def _units(rows: Sequence[tuple[Any, ...]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(row[0] for row in rows))


def _distinct(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(row[1] for row in rows if row[1])) or [""]


def clean_name(value: Any) -> str:
    """A name as the graph keeps it: single spaces, capital letters."""
    return " ".join(str(value or "").split()).upper()


def description_of(row: Mapping[str, Any]) -> str:
    """The description in `row`, with single spaces; blank where there is none."""
    return " ".join(str(row.get("description") or "").split())
