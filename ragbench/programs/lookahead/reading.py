"""How a planner's reply becomes a plan graph: look-ups checked, variables found in queries.

A query refers to what another look-up finds out as {variable}, {id} or {id.variable}; the forms
<variable>, [variable] and ${variable}, and a bare id such as n1, are read as well where the name is
one of the plan's. In a look-up that names nothing this way, the bare name of a variable counts if
the look-up says that it depends on the one that produces it, but not before "of": "director of"
asks for one. A name that no look-up produces means whatever the only dependency finds out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ragbench.programs.core import unit
from ragbench.programs.lookahead.graph import Node, PlanGraph, Reference
from ragbench.signatures import LookUpNode

#: What a look-up finds out that is referred to by its id alone.
ANSWER = "answer"

_BRACES = re.compile(r"\$?\{+\s*([^{}]*?)\s*\}+")
_OTHERS = re.compile(r"<\s*([\w .-]+?)\s*>|\[\s*([\w .-]+?)\s*\]")
_BARE_ID = re.compile(r"\b[A-Za-z]+[_-]?\d+\b")


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
    ids = {node.id for node in nodes if node.query}
    whole = [replace(n, depends_on=_known(n, ids)) for n in nodes if n.query]
    mended = whole != nodes
    if mended and not mend:
        raise BadPlanError("a blank look-up, or one that waits for itself or an unknown one")
    if not whole or len({node.id for node in whole}) < len(whole):
        raise BadPlanError("no look-ups, or two of the same id")
    graph = PlanGraph(tuple(_linked(node, whole) for node in whole))
    circle = _circle(graph)
    if circle and mend:
        mended = True
        graph = PlanGraph(tuple(_linked(node, whole) for node in _forward(graph)))
        circle = _circle(graph)
    if circle:
        raise BadPlanError(f"look-ups wait for each other: {', '.join(circle)}")
    if mended:
        count("mended_plan")
    return _numbered(graph)


def _circle(graph: PlanGraph) -> list[str]:
    """Ids of look-ups that wait for each other, and of those that wait for these."""
    reached = {node.id for level in graph.levels() for node in level}
    return [node.id for node in graph if node.id not in reached]


def _forward(graph: PlanGraph) -> Iterator[Node]:
    """The look-ups without the dependencies that they declare on later ones."""
    earlier: set[str] = set()
    for node in graph:
        yield replace(node, depends_on=tuple(i for i in node.depends_on if i in earlier))
        earlier.add(node.id)


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


def _known(node: Node, ids: set[str]) -> tuple[str, ...]:
    return tuple(d for d in node.depends_on if d in ids and d != node.id)


def _linked(node: Node, nodes: Sequence[Node]) -> Node:
    """`node` with its references found, and a dependency on each look-up that it refers to."""
    references = list(_references(node, nodes))
    after = (*node.depends_on, *(r.node for r in references if r.node))
    return replace(node, references=tuple(references), depends_on=tuple(dict.fromkeys(after)))


def _references(node: Node, nodes: Sequence[Node]) -> list[Reference]:
    others = [other for other in nodes if other.id != node.id]
    references = []
    for match in _BRACES.finditer(node.query):
        source = _source(match[1], node, others) or _only_dependency(match[1], node)
        references.append(Reference(match.start(), match.end(), *(source or ("", ""))))
    for pattern in (_OTHERS, _BARE_ID):
        for match in pattern.finditer(node.query):
            inside = any(r.start < match.end() and match.start() < r.end for r in references)
            source = _source(next(filter(None, match.groups()), match[0]), node, others)
            if source and not inside:
                references.append(Reference(match.start(), match.end(), *source))
    references = references or _bare_variables(node, others)
    return sorted(references)


def _source(text: str, node: Node, others: Sequence[Node]) -> tuple[str, str] | None:
    """Look-up and variable that `text` names; a producer that `node` waits for comes first."""
    name, (head, _, tail) = variable_name(text), text.strip().partition(".")
    for other in others:
        if other.id == head:
            # What is asked of a look-up by its id alone is the first thing that it finds out.
            return other.id, variable_name(tail) or next(iter(other.produces), ANSWER)
    producers = [other.id for other in others if name and name in other.produces]
    first = sorted(producers, key=lambda i: i not in node.depends_on)
    return (first[0], name) if first else None


def _only_dependency(text: str, node: Node) -> tuple[str, str] | None:
    name = variable_name(text)
    return (node.depends_on[0], name) if name and len(node.depends_on) == 1 else None


def _bare_variables(node: Node, others: Sequence[Node]) -> list[Reference]:
    references: list[Reference] = []
    for other in others:
        if other.id not in node.depends_on:
            continue
        for variable in other.produces:
            words = r"[ _]".join(map(re.escape, variable.split("_")))
            match = re.search(rf"\b{words}\b(?! of\b)", node.query, re.IGNORECASE)
            if match and not any(
                r.start < match.end() and match.start() < r.end for r in references
            ):
                references.append(Reference(match.start(), match.end(), other.id, variable))
    return references


def variable_name(text: str) -> str:
    """A variable's name in one spelling: words of lower case joined by underscores."""
    return "_".join(re.findall(r"\w+", text.lower()))
