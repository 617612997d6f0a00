"""The plan graph of `lookahead`: look-ups that depend on each other, without a circle."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

    @property
    def bindings(self) -> dict[str, str]:
        """Variable as this query names it -> look-up and variable that it is taken from."""
        return {
            self.query[r.start : r.end]: f"{r.node}.{r.variable}" for r in self.references if r.node
        }


@dataclass(frozen=True)
class PlanGraph:
    """Look-ups in the order planned, or kept.

    Every dependency is one of them, and none goes in a circle.
    """

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
        return _mean([_entropy(node.confidence) for node in self.nodes if node.stated], none=0.0)

    @property
    def confidence(self) -> float:
        """Mean stated confidence, in [0, 1]; 1 where none is stated."""
        return _mean([node.confidence for node in self.nodes if node.stated], none=1.0)

    @property
    def critical(self) -> frozenset[str]:
        """Ids of the look-ups that others depend on."""
        return frozenset(d for node in self.nodes for d in node.depends_on)

    def levels(self) -> list[list[Node]]:
        """The look-ups that can run at once, level by level.

        The first level is in the order planned, each further one in the order in which the level
        before it makes its look-ups ready.
        """
        waiting = {node.id: set(node.depends_on) for node in self.nodes}
        level = [node for node in self.nodes if not node.depends_on]
        levels = []
        while level:
            levels.append(level)
            level = [
                after for node in level for after in self.nodes if _is_last(waiting[after.id], node)
            ]
        return levels

    def wanted(self, node: Node, *, ignoring: Container[str] = ()) -> tuple[str, ...]:
        """The variables of `node` that other look-ups use, but those whose ids are ignored."""
        users = [other for other in self.nodes if other.id not in ignoring]
        used = (r.variable for other in users for r in other.references if r.node == node.id)
        return tuple(dict.fromkeys(used))

    @property
    def conclusions(self) -> frozenset[str]:
        """Ids of the look-ups to be computed whose results no other uses: the answer's own work."""
        used = {r.node for node in self.nodes for r in node.references}
        return frozenset(n.id for n in self.nodes if n.computed and n.id not in used)

    def keep(self, ids: Sequence[str]) -> PlanGraph:
        """The graph of these look-ups alone, in this order; it must have all their dependencies."""
        known = {node.id: node for node in self.nodes}
        return PlanGraph(tuple(known[i] for i in ids))

    def lines(self) -> list[str]:
        """One line a look-up: id, query, what it waits for, what it finds out."""
        return [_line(node) for node in self.nodes]

    def to_dicts(self) -> list[dict[str, Any]]:
        """The look-ups, JSON-ready."""
        return [
            {
                "id": node.id,
                "query": node.query,
                "op": node.op,
                "depends_on": list(node.depends_on),
                "confidence": round(node.confidence, 4),
                "cost": node.cost,
                "produces": list(node.produces),
                "bindings": node.bindings,
            }
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

    def line(self, numbers: Sequence[int] = ()) -> str:
        """The look-up as the answer's prompt tells it: its findings, its passages' `numbers`."""
        values = "; ".join(f"{name} = {', '.join(given)}" for name, given in self.values.items())
        shown = f" [{', '.join(map(str, numbers))}]" if numbers else ""
        text = f"{self.node.id}: {' / '.join(self.queries)}" + (f" -> {values}" if values else "")
        return text + shown


def single(question: str) -> PlanGraph:
    """The plan of looking up the question itself."""
    return PlanGraph((Node("n1", question),))


def _is_last(waiting: set[str], node: Node) -> bool:
    """Whether `node` is the last that was waited for; it is waited for no longer."""
    if node.id not in waiting:
        return False
    waiting.remove(node.id)
    return not waiting


def _line(node: Node) -> str:
    after = f" (after {', '.join(node.depends_on)})" if node.depends_on else ""
    gives = f" -> {', '.join(node.produces)}" if node.produces else ""
    return f"{node.id}: {node.query}{after}{gives}"


def _entropy(p: float) -> float:
    return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def _mean(numbers: Sequence[float], *, none: float) -> float:
    return sum(numbers) / len(numbers) if numbers else none
