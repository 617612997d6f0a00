"""The context of GraphRAG's local search: reports, tables and texts around some entities.

Edge et al. 2024 (arXiv:2404.16130), as its published code builds it, from a graph in plain values.
Tokens are estimated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ragbench.tokens import estimate_tokens


@dataclass(frozen=True)
class Node:
    """An entity: name, type, description, the texts that name it, and its number of relations."""

    name: str
    type: str
    description: str
    units: tuple[int, ...]
    degree: int = 0


@dataclass(frozen=True)
class Link:
    """A relation of two entities, by position, and the texts that state it."""

    source: int
    target: int
    description: str
    weight: float
    units: tuple[int, ...]


@dataclass(frozen=True)
class Report:
    """What an LM wrote of a community; `rating` is its importance, 0 to 10."""

    level: int
    members: tuple[int, ...]
    title: str
    text: str
    rating: float


@dataclass(frozen=True)
class Shares:
    """Tokens of the context, and the shares of reports and texts in it; tables have the rest."""

    tokens: int = 12_000
    reports: float = 0.15
    texts: float = 0.5
    #: Relations per entity that lead out of the selection.
    relations: int = 10

    @property
    def tables(self) -> int:
        """Tokens of the tables."""
        return max(int(self.tokens * (1 - self.reports - self.texts)), 0)


def chosen_reports(
    entities: Sequence[int], reports: Sequence[Report], *, level: int, tokens: int
) -> list[int]:
    """The reports, by position, of the communities with most of `entities`, then by rating.

    Of each entity those of its communities down to `level` count; a report stands in only if its
    community is the lowest of some entity. The first that does not fit `tokens` ends it.
    """
    known = [i for i, report in enumerate(reports) if report.level <= level]
    lowest = {member: i for i in known for member in reports[i].members}
    selected = set(entities)
    matches = {i: len(selected & set(reports[i].members)) for i in set(lowest.values())}
    ranked = sorted(
        (i for i in matches if matches[i]), key=lambda i: (-matches[i], -reports[i].rating, i)
    )
    kept: list[int] = []
    for i in ranked:
        tokens -= estimate_tokens(f"{reports[i].title} | {reports[i].text}")
        if tokens < 0:
            break
        kept.append(i)
    return kept


def tables(
    entities: Sequence[int], nodes: Sequence[Node], links: Sequence[Link], shares: Shares
) -> tuple[list[str], list[str]]:
    """The lines of the table of entities and of that of their relations.

    Relations are those of the first entities, as many of these as fit with the table of all.
    """
    lines = fitting([_entity(nodes[i]) for i in entities], shares.tables)
    left = shares.tables - sum(map(estimate_tokens, lines))
    around: list[str] = []
    for n in range(1, len(entities) + 1):
        rows = [_relation(links[i], nodes) for i in relations(entities[:n], nodes, links, shares)]
        if sum(map(estimate_tokens, rows)) > left:
            break
        around = rows
    return lines, around


def relations(
    entities: Sequence[int], nodes: Sequence[Node], links: Sequence[Link], shares: Shares
) -> list[int]:
    """Links, by position: all among `entities`, then those that lead out, the most shared first.

    A link out is shared by as many of `entities` as its far end is linked to. Among equals the one
    whose two ends have more links comes first. At most `shares.relations` per entity lead out.
    """
    selected = set(entities)
    inside, out = [], []
    far: defaultdict[int, set[int]] = defaultdict(set)  # end outside: those of `entities` at it
    for i, link in enumerate(links):
        ends = {link.source, link.target}
        if ends <= selected:
            inside.append(i)
        elif ends & selected:
            out.append(i)
            [other] = ends - selected
            far[other] |= ends & selected

    def rank(i: int) -> int:
        return nodes[links[i].source].degree + nodes[links[i].target].degree

    def shared(i: int) -> int:
        return max(len(far[end]) for end in (links[i].source, links[i].target) if end in far)

    inside.sort(key=lambda i: (-rank(i), i))
    out.sort(key=lambda i: (-shared(i), -rank(i), i))
    return inside + out[: shares.relations * len(entities)]


def chosen_units(
    entities: Sequence[int],
    nodes: Sequence[Node],
    links: Sequence[Link],
    sizes: Sequence[int],
    *,
    tokens: int,
) -> list[int]:
    """The texts that name the entities: in their order, then by how many relations each states.

    `sizes` are the tokens of all texts. The first that does not fit `tokens` ends it.
    """
    ranked: dict[int, None] = {}
    for entity in entities:
        of = [link for link in links if entity in (link.source, link.target)]
        stated = Counter(unit for link in of for unit in link.units)
        new = [unit for unit in nodes[entity].units if unit not in ranked]
        ranked |= dict.fromkeys(sorted(new, key=lambda unit: (-stated[unit], unit)))
    kept: list[int] = []
    for unit in ranked:
        tokens -= sizes[unit]
        if tokens < 0:
            break
        kept.append(unit)
    return kept


def fitting(lines: Sequence[str], tokens: int) -> list[str]:
    """The first lines that fit `tokens`."""
    kept: list[str] = []
    for line in lines:
        tokens -= estimate_tokens(line)
        if tokens < 0:
            break
        kept.append(line)
    return kept


def _entity(node: Node) -> str:
    return f"{node.name} ({node.type}): {node.description}"


def _relation(link: Link, nodes: Sequence[Node]) -> str:
    return f"{nodes[link.source].name} - {nodes[link.target].name}: {link.description}"
