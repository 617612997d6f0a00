"""The context of GraphRAG's local search: reports, tables and texts around some entities.

Edge et al. 2024 (arXiv:2404.16130), as its published code builds it.
Tokens are estimated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ragbench.retrievers.lm_index.merging import Entity, Relation, degrees
from ragbench.tokens import estimate_tokens

Item = TypeVar("Item")


@dataclass(frozen=True)
class Report:
    """What an LM wrote of a community; `rating` is its importance, 0 to 10."""

    level: int
    members: tuple[int, ...]
    title: str
    text: str
    rating: float


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
    return fitting(
        ranked, tokens, size=lambda i: estimate_tokens(f"{reports[i].title} | {reports[i].text}")
    )


def tables(
    chosen: Sequence[int],
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    *,
    tokens: int,
    each: int,
) -> tuple[list[str], list[str]]:
    """The lines of the table of the `chosen` entities and of that of their relations.

    Relations are those of the first entities, as many of these as fit `tokens` with the table of
    all; at most `each` per entity lead to others.
    """
    lines = fitting([entities[i].line for i in chosen], tokens)
    left = tokens - sum(map(estimate_tokens, lines))
    degree = degrees(len(entities), relations)
    around: list[str] = []
    for n in range(1, len(chosen) + 1):
        ranked = ranked_relations(chosen[:n], relations, degree, each=each)
        rows = [relations[i].line(entities) for i in ranked]
        if sum(map(estimate_tokens, rows)) > left:
            break
        around = rows
    return lines, around


def ranked_relations(
    chosen: Sequence[int], relations: Sequence[Relation], degree: Sequence[int], *, each: int
) -> list[int]:
    """Relations, by position: all among `chosen`, then those that lead out, the most shared first.

    One that leads out is shared by as many of `chosen` as its far end is related to. Among equals
    the one whose two ends have the larger `degree` comes first. At most `each` per entity lead out.
    """
    selected = set(chosen)
    inside, out = [], []
    far: defaultdict[int, set[int]] = defaultdict(set)  # end outside: those of `chosen` at it
    for i, relation in enumerate(relations):
        ends = set(relation.ends)
        if ends <= selected:
            inside.append(i)
        elif ends & selected:
            out.append(i)
            [other] = ends - selected
            far[other] |= ends & selected

    def rank(i: int) -> int:
        return sum(degree[end] for end in relations[i].ends)

    def shared(i: int) -> int:
        return max(len(far[end]) for end in relations[i].ends if end in far)

    inside.sort(key=lambda i: (-rank(i), i))
    out.sort(key=lambda i: (-shared(i), -rank(i), i))
    return inside + out[: each * len(chosen)]


def chosen_passages(
    chosen: Sequence[int],
    entities: Sequence[Entity],
    relations: Sequence[Relation],
    sizes: Sequence[int],
    *,
    tokens: int,
) -> list[int]:
    """The passages that name `chosen`: in their order, then by how many relations each states.

    `sizes` are the tokens of all passages. The first that does not fit `tokens` ends it.
    """
    ranked: dict[int, None] = {}
    for entity in chosen:
        of = [relation for relation in relations if entity in relation.ends]
        stated = Counter(passage for relation in of for passage in relation.passages)
        new = [passage for passage in entities[entity].passages if passage not in ranked]
        ranked |= dict.fromkeys(sorted(new, key=lambda passage: (-stated[passage], passage)))
    return fitting(list(ranked), tokens, size=lambda passage: sizes[passage])


def fitting(
    items: Iterable[Item], tokens: int, *, size: Callable[[Any], int] = estimate_tokens
) -> list[Item]:
    """The first items, by default texts, whose sizes fit `tokens` together."""
    kept: list[Item] = []
    for item in items:
        tokens -= size(item)
        if tokens < 0:
            break
        kept.append(item)
    return kept
