"""Which plan is followed, and which of its look-ups a retrieval budget pays for.

The published engine weighs confidence, novelty and place in the chain as a sum; its description
says a product, which here is the weighted geometric mean, so that a look-up that repeats another is
worth nothing however sure it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ragbench.programs.core import jaccard
from ragbench.programs.lookahead.graph import Node, PlanGraph

Score = Literal["sum", "product"]

#: Two queries with at least this share of their words in common count as the same look-up.
ALIKE = 0.5


class Weights(NamedTuple):
    """How much each part of the utility counts."""

    confidence: float
    novelty: float
    hop: float


@dataclass(frozen=True)
class Pruned:
    """What was kept, and the utility that each kept look-up had when it was chosen."""

    graph: PlanGraph
    utilities: dict[str, float]


def prune(graph: PlanGraph, *, budget: int, weights: Weights, score: Score) -> Pruned:
    """The plan within `budget`; untouched where it costs no more than that.

    Greedy: of the look-ups whose dependencies are kept and that fit, the one of most utility is
    kept next; one without any is left out. They stay in the order kept, of which there may be none.
    """
    if graph.cost <= budget:
        return Pruned(graph, {})
    kept: dict[str, Node] = {}
    utilities: dict[str, float] = {}
    while True:
        left = budget - sum(node.cost for node in kept.values())
        worth = {
            node: utility(node, list(kept.values()), graph, weights=weights, score=score)
            for node in graph
            if node.id not in kept and node.cost <= left and kept.keys() >= set(node.depends_on)
        }
        best = max(worth, key=lambda node: worth[node], default=None)  # the first of equals
        if best is None or worth[best] <= 0:
            return Pruned(PlanGraph(tuple(kept.values())), utilities)
        kept[best.id] = best
        utilities[best.id] = worth[best]


def utility(
    node: Node, kept: Sequence[Node], graph: PlanGraph, *, weights: Weights, score: Score
) -> float:
    """The worth of `node` beside those `kept`, in [0, 1]; 1 where no weight is above 0.

    Novelty is 1 less the largest share of words, as written, in common with a kept query. The place
    in the chain is worth 0.9 in its middle, else 0.7.
    """
    novelty = 1 - max((_shared(node.query, other.query) for other in kept), default=0.0)
    hop = 0.9 if node.depends_on and node.id in graph.awaited else 0.7
    total = sum(weights)
    if not total:
        return 1.0
    pairs = list(zip(weights, (node.confidence, novelty, hop), strict=True))
    if score == "sum":
        return sum(weight * part for weight, part in pairs) / total
    return float(math.prod(part ** (weight / total) for weight, part in pairs if weight))


def consensus(plans: Sequence[PlanGraph]) -> PlanGraph:
    """The plan that agrees most with the others (the first of equals).

    The confidence of each of its look-ups becomes the share of `plans`, its own included, that have
    a like one. A single plan comes back as it is.
    """
    if len(plans) == 1:
        return plans[0]
    agreed = [PlanGraph(tuple(_rated(node, plans) for node in plan)) for plan in plans]
    return max(agreed, key=lambda plan: plan.confidence)


def _rated(node: Node, plans: Sequence[PlanGraph]) -> Node:
    alike = sum(any(jaccard(node.query, n.query) >= ALIKE for n in plan) for plan in plans)
    return replace(node, confidence=alike / len(plans), stated=True)


def _shared(a: str, b: str) -> float:
    one, other = set(a.lower().split()), set(b.lower().split())
    return len(one & other) / len(one | other) if one and other else 0.0
