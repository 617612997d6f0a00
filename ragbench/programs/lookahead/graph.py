"""The plan graph of `lookahead`: look-ups that depend on each other, without a circle."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from statistics import fmean
from typing import Any, NamedTuple

from ragbench.retrievers import Passage

#: Kinds of look-up that are worked out from what others found, and search nothing.
COMPUTED = frozenset(["compare", "aggregate"])


class Reference(NamedTuple):
    """Where a query names a variable, and which look-up finds it out; blank if none does."""

    start: int
    end: int
    node: str
    variable: str


@dataclass(frozen=True)
class Node:
    """One look-up; `references` are in the order of the query.

    `stated` tells a confidence that the planner gave from one that it left out.
    """

    id: str
    query: str
    op: str = "lookup"
    depends_on: tuple[str, ...] = ()
    confidence: float = 0.5
    cost: int = 1
    produces: tuple[str, ...] = ()
    stated: bool = True
    references: tuple[Reference, ...] = ()

    @property
    def computed(self) -> bool:
        """Whether it can be worked out from what the look-ups that it waits for find."""
        return self.op in COMPUTED and bool(self.depends_on)


@dataclass(frozen=True)
class PlanGraph:
    """Look-ups in the order planned, or kept; each depends on others of them alone."""

    nodes: tuple[Node, ...]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def cost(self) -> int:
        """The sum of the look-ups' costs."""
        return sum(node.cost for node in self.nodes)

    @property
    def entropy(self) -> float:
        """Mean binary entropy of the stated confidences, in [0, 1]: 1 where all are 0.5."""
        stated = [_entropy(node.confidence) for node in self.nodes if node.stated]
        return fmean(stated) if stated else 0.0

    @property
    def confidence(self) -> float:
        """Mean stated confidence, in [0, 1]; 1 where none is stated."""
        stated = [node.confidence for node in self.nodes if node.stated]
        return fmean(stated) if stated else 1.0

    @property
    def awaited(self) -> frozenset[str]:
        """Ids of the look-ups that others depend on."""
        return frozenset(d for node in self.nodes for d in node.depends_on)

    def levels(self) -> list[list[Node]]:
        """The look-ups that can run at once, level by level, in the order in which they are ready.

        Raises:
            graphlib.CycleError: look-ups wait for each other.
        """
        by_id = {node.id: node for node in self.nodes}
        sorter: TopologicalSorter[str] = TopologicalSorter({i: () for i in by_id})
        for node in self.nodes:
            sorter.add(node.id, *node.depends_on)
        sorter.prepare()
        levels = []
        while sorter.is_active():
            ready = sorter.get_ready()
            sorter.done(*ready)
            levels.append([by_id[i] for i in ready])
        return levels

    def wanted(self, node: Node, *, ignoring: Collection[str] = ()) -> tuple[str, ...]:
        """The variables of `node` that other look-ups use, but those whose ids are ignored."""
        users = [other for other in self.nodes if other.id not in ignoring]
        used = (r.variable for other in users for r in other.references if r.node == node.id)
        return tuple(dict.fromkeys(used))

    @property
    def conclusions(self) -> frozenset[str]:
        """Ids of the look-ups to be computed whose results no other uses: the answer's own work."""
        used = {r.node for node in self.nodes for r in node.references}
        return frozenset(n.id for n in self.nodes if n.computed and n.id not in used)

    def lines(self) -> list[str]:
        """One line a look-up: id, query, what it waits for, what it finds out."""
        return [
            f"{node.id}: {node.query}"
            + (f" (after {', '.join(node.depends_on)})" if node.depends_on else "")
            + (f" -> {', '.join(node.produces)}" if node.produces else "")
            for node in self.nodes
        ]


@dataclass(frozen=True)
class LookedUp:
    """The result of a look-up; `unbound` are the wanted variables that got no value.

    One that was computed was not `searched`.
    """

    node: Node
    queries: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unbound: tuple[str, ...] = ()
    searched: bool = True

    def line(self, labels: Sequence[str] = ()) -> str:
        """The look-up as the answer's prompt tells it: its findings, its passages' `labels`."""
        values = "; ".join(f"{name} = {', '.join(given)}" for name, given in self.values.items())
        shown = f" [{', '.join(labels)}]" if labels else ""
        text = f"{self.node.id}: {' / '.join(self.queries)}" + (f" -> {values}" if values else "")
        return text + shown

    def to_dict(self) -> dict[str, Any]:
        """The look-up as planned and done, JSON-ready; `bindings` say where variables come from."""
        node = self.node
        return {
            "id": node.id,
            "query": node.query,
            "op": node.op,
            "depends_on": list(node.depends_on),
            "confidence": round(node.confidence, 4),
            "cost": node.cost,
            "produces": list(node.produces),
            "bindings": {
                node.query[r.start : r.end]: f"{r.node}.{r.variable}"
                for r in node.references
                if r.node
            },
            "queries": list(self.queries),
            "values": {name: list(values) for name, values in self.values.items()},
        }


def single(question: str) -> PlanGraph:
    """The plan of looking up the question itself."""
    return PlanGraph((Node("n1", question),))


def _entropy(p: float) -> float:
    return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)
