"""How a planner's reply becomes a plan graph: look-ups checked, variables found in queries.

A query refers to what another look-up finds out as {variable}, {id} or {id.variable}. A name that
no look-up produces means whatever the only dependency finds out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError

from ragbench.programs.core import unit
from ragbench.programs.lookahead.graph import Node, PlanGraph, Reference
from ragbench.signatures import LookUpNode

#: What a look-up finds out that is referred to by its id alone.
ANSWER = "answer"

_BRACES = re.compile(r"\$?\{+\s*([^{}]*?)\s*\}+")


class BadPlanError(Exception):
    """A plan that cannot be followed."""


def read_plan(
    planned: Sequence[LookUpNode],
    *,
    max_nodes: int,
    mend: bool,
    count: Callable[[str], None] = lambda event: None,
) -> PlanGraph:
    """The graph that a planner's reply describes; look-ups after the first `max_nodes` are cut.

    They are called n1, n2, ... in the order planned: small models give whole phrases as ids, which
    every label of a passage would repeat.

    With `mend`, blank look-ups and dependencies on themselves or on unknown ones are left out, and
    where look-ups wait for each other those on later ones that no query refers to; such a plan is
    counted as `mended_plan`. Without it any of these makes the plan a bad one.

    Raises:
        BadPlanError: no look-up, the same id twice, or a circle.
    """
    cut = {node.id.strip() for node in planned[max_nodes:]}
    if cut:
        count("cut_nodes")
    nodes = [_node(node, cut) for node in planned[:max_nodes]]
    place = {node.id: number for number, node in enumerate(nodes) if node.query}
    whole = [
        replace(n, depends_on=tuple(d for d in n.depends_on if d in place and d != n.id))
        for n in nodes
        if n.query
    ]
    mended = whole != nodes
    if mended and not mend:
        raise BadPlanError("a blank look-up, or one that waits for itself or an unknown one")
    if not whole or len(place) < len(whole):
        raise BadPlanError("no look-ups, or two of the same id")
    graph = PlanGraph(tuple(_linked(node, whole) for node in whole))
    if _in_circle(graph) and mend:
        mended = True
        forward = [
            replace(n, depends_on=tuple(d for d in n.depends_on if place[d] < place[n.id]))
            for n in graph
        ]
        graph = PlanGraph(tuple(_linked(node, whole) for node in forward))
    if _in_circle(graph):
        raise BadPlanError("look-ups wait for each other")
    if mended:
        count("mended_plan")
    return _numbered(graph)


def _in_circle(graph: PlanGraph) -> bool:
    try:
        graph.levels()
    except CycleError:
        return True
    return False


def _numbered(graph: PlanGraph) -> PlanGraph:
    short = {node.id: f"n{place}" for place, node in enumerate(graph, start=1)}
    return PlanGraph(tuple(
        replace(
            node,
            id=short[node.id],
            depends_on=tuple(short[i] for i in node.depends_on),
            references=tuple(r._replace(node=short.get(r.node, "")) for r in node.references),
        )
        for node in graph
    ))  # fmt: skip


def _node(planned: LookUpNode, cut: set[str]) -> Node:
    after = (name.strip() for name in planned.depends_on)
    produces = (variable_name(name) for name in getattr(planned, "produces", ()))
    return Node(
        id=planned.id.strip(),
        query=" ".join(planned.query.split()),
        op=planned.op,
        depends_on=tuple(dict.fromkeys(name for name in after if name not in cut)),
        confidence=unit(planned.confidence, default=0.5),
        stated=planned.confidence is not None,
        cost=max(planned.cost, 1),
        produces=tuple(dict.fromkeys(filter(None, produces))),
    )


def _linked(node: Node, nodes: Sequence[Node]) -> Node:
    """`node` with its references found, and a dependency on each look-up that it refers to."""
    references = tuple(_references(node, [other for other in nodes if other.id != node.id]))
    after = (*node.depends_on, *(r.node for r in references if r.node))
    return replace(node, references=references, depends_on=tuple(dict.fromkeys(after)))


def _references(node: Node, others: Sequence[Node]) -> Iterator[Reference]:
    for match in _BRACES.finditer(node.query):
        source = _source(match[1], node, others)
        yield Reference(match.start(), match.end(), *source)


def _source(text: str, node: Node, others: Sequence[Node]) -> tuple[str, str]:
    """Look-up and variable that `text` names; a producer that `node` waits for comes first."""
    name, (head, _, tail) = variable_name(text), text.strip().partition(".")
    for other in others:
        if other.id == head:
            # What is asked of a look-up by its id alone is the first thing that it finds out.
            return other.id, variable_name(tail) or next(iter(other.produces), ANSWER)
    producers = [other.id for other in others if name and name in other.produces]
    producers.sort(key=lambda i: i not in node.depends_on)
    if not producers and name and len(node.depends_on) == 1:
        producers = list(node.depends_on)
    return (producers[0], name) if producers else ("", "")


def variable_name(text: str) -> str:
    """A variable's name in one spelling: words of lower case joined by underscores."""
    return "_".join(re.findall(r"\w+", text.lower()))
