"""Several plans for one question: the most typical one, with agreement as its confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragbench.programs.core import jaccard
from ragbench.programs.lookahead.graph import Node, PlanGraph

#: Two queries with at least this share of their words in common count as the same look-up.
ALIKE = 0.5


def consensus(plans: Sequence[PlanGraph]) -> PlanGraph:
    """The plan that agrees most with the others (the first of equals).

    The confidence of each of its look-ups becomes the share of `plans`, its own included, that have
    a like one. A single plan comes back as it is.
    """
    if len(plans) == 1:
        return plans[0]
    agreed = [replace(plan, nodes=tuple(_rated(node, plans) for node in plan)) for plan in plans]
    return max(agreed, key=lambda plan: plan.confidence)


def _rated(node: Node, plans: Sequence[PlanGraph]) -> Node:
    alike = sum(any(jaccard(node.query, n.query) >= ALIKE for n in plan) for plan in plans)
    return replace(node, confidence=alike / len(plans), stated=True)
