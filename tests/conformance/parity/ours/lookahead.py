"""LookaheadRAG's pruner and levels as `lookahead variant=engine` has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.programs.lookahead.plan import LookUp, PlanGraph
from ragbench.programs.lookahead.program import LookaheadRAG
from tests.conformance.parity.ours import Parts, World
from tests.programs.shelf import shelf


def parts(world: World) -> Parts:
    """The pruner, and the levels of what it keeps."""
    program = LookaheadRAG(shelf(), variant="engine")

    def graph(plan: Sequence[Mapping[str, Any]]) -> PlanGraph:
        nodes = (
            LookUp(
                node["id"],
                node["query"],
                node["op"],
                tuple(node["depends_on"]),
                node["confidence"],
                node["budget_cost"],
            )
            for node in plan
        )
        return PlanGraph(tuple(nodes))

    def levels(found: PlanGraph) -> list[list[str]]:
        return [[node.id for node in level] for level in found.levels()]

    return {
        "kept": lambda plan: [node.id for node in program.within_budget(graph(plan))[0]],
        "levels": lambda plan: levels(program.within_budget(graph(plan))[0]),
        "whole": lambda plan: levels(graph(plan)),
    }
