"""Communities of a graph, level below level, by igraph's Leiden algorithm (Traag et al. 2019).

As GraphRAG asks for them: of the largest connected part, by modularity at resolution 1, each that
is larger than `max_size` divided again. Its authors use another implementation, whose random
numbers, and so whose communities, are its own.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: igraph draws from one source of random numbers for the whole process.
_LOCK = threading.Lock()
_RANDOMNESS = 0.001


@dataclass(frozen=True)
class Community:
    """Nodes that belong together; `parent` is the position of the community divided, or -1."""

    level: int
    parent: int
    members: tuple[int, ...]


def communities_of(
    n: int,
    edges: Sequence[tuple[int, int]],
    weights: Sequence[float],
    *,
    max_size: int = 10,
    seed: int = 0xDEADBEEF,
) -> list[Community]:
    """The communities of nodes 0 to n - 1, those of a level after those of the level above."""
    if not edges:
        return []
    import igraph

    graph = igraph.Graph(n=n, edges=list(edges), directed=False)
    graph.es["weight"] = list(weights)
    graph.vs["node"] = list(range(n))
    graph = graph.simplify(combine_edges="sum")
    parts = graph.connected_components()
    whole = graph.induced_subgraph(max(parts, key=len))
    with _LOCK:
        igraph.set_random_number_generator(random.Random(seed))
        try:
            return _divided(whole, max_size)
        finally:
            igraph.set_random_number_generator(random)


def _divided(whole: Any, max_size: int) -> list[Community]:
    found: list[Community] = []
    waiting = [(whole, _parts(whole), 0, -1)]
    for graph, parts, level, parent in waiting:  # grows as it goes: level after level
        for part in parts:
            inner = graph.induced_subgraph(part)
            found.append(Community(level, parent, tuple(inner.vs["node"])))
            if len(part) > max_size and len(below := _parts(inner)) > 1:
                waiting.append((inner, below, level + 1, len(found) - 1))
    return found


def _parts(graph: Any) -> list[list[int]]:
    parts = graph.community_leiden(
        objective_function="modularity",
        weights="weight",
        resolution=1.0,
        beta=_RANDOMNESS,
        n_iterations=1,
    )
    return sorted((list(part) for part in parts), key=lambda part: (-len(part), part))


def degrees(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The number of edges at each node."""
    counts: list[int] = np.bincount(np.array(edges, dtype=np.int64).ravel(), minlength=n).tolist()
    return counts
