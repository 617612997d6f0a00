"""Choose the look-ups of a plan that a retrieval budget pays for, best first.

The published engine weighs confidence, novelty and place in the chain as a sum; its description
says a product, which here is the weighted geometric mean, so that a look-up that repeats another is
worth nothing however sure it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ragbench.programs.lookahead.graph import Node, PlanGraph

Score = Literal["sum", "product"]


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
        open_ = [
            node
            for node in graph
            if node.id not in kept and node.cost <= left and kept.keys() >= set(node.depends_on)
        ]
        worth = {
            node.id: utility(node, list(kept.values()), graph, weights=weights, score=score)
            for node in open_
        }
        best = max(open_, key=lambda node: worth[node.id], default=None)  # the first of equals
        if best is None or worth[best.id] <= 0:
            return Pruned(graph.keep(list(kept)), utilities)
        kept[best.id] = best
        utilities[best.id] = worth[best.id]


def utility(
    node: Node, kept: Sequence[Node], graph: PlanGraph, *, weights: Weights, score: Score
) -> float:
    """The worth of `node` beside those `kept`, in [0, 1]; 1 where no weight is above 0."""
    parts = Weights(node.confidence, novelty(node, kept), hop_score(node, graph))
    total = sum(weights)
    if not total:
        return 1.0
    if score == "sum":
        return sum(w * part for w, part in zip(weights, parts, strict=True)) / total
    powers = [part ** (w / total) for w, part in zip(weights, parts, strict=True) if w]
    return float(math.prod(powers))


def novelty(node: Node, kept: Sequence[Node]) -> float:
    """1 less the largest share of words, as written, in common with a kept query."""
    return 1 - max((_shared(node.query, other.query) for other in kept), default=0.0)


def _shared(a: str, b: str) -> float:
    one, other = set(a.lower().split()), set(b.lower().split())
    return len(one & other) / len(one | other) if one and other else 0.0


def hop_score(node: Node, graph: PlanGraph) -> float:
    """The place of `node`, which can be kept, in the chain: 0.9 in its middle, else 0.7."""
    return 0.9 if node.depends_on and node.id in graph.critical else 0.7
