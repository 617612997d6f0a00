"""Communities of a graph, level below level, by the Leiden algorithm (Traag et al. 2019).

As GraphRAG asks for them: of the largest connected part, by modularity at resolution 1, each that
is larger than `max_size` divided again. igraph is the default; `graspologic` is the implementation
that its authors use, whose random numbers, and so whose communities, are its own.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragbench.errors import needs_extra

Leiden = Literal["igraph", "graspologic"]

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
    leiden: Leiden = "igraph",
    names: Sequence[str] = (),
) -> list[Community]:
    """The communities of nodes 0 to n - 1, those of a level after those of the level above.

    graspologic takes the edges in the order of their nodes' `names`, by default of their numbers.

    Raises:
        MissingExtraError: igraph, or the implementation asked for, is not installed.
    """
    if not edges:
        return []
    with needs_extra("a graph's communities"):
        import igraph
    graph = igraph.Graph(n=n, edges=list(edges), directed=False)
    graph.es["weight"] = list(weights)
    graph.vs["node"] = list(range(n))
    graph = graph.simplify(combine_edges="sum")
    parts = graph.connected_components()
    whole = graph.induced_subgraph(max(parts, key=len))
    if leiden == "graspologic":
        return _by_graspologic(whole, max_size, seed, names)
    with _LOCK:
        igraph.set_random_number_generator(random.Random(seed))
        try:
            return _divided(whole, max_size)
        finally:
            igraph.set_random_number_generator(random)


def _divided(whole: Any, max_size: int) -> list[Community]:
    communities: list[Community] = []
    waiting = [(whole, _parts(whole), 0, -1)]
    for graph, parts, level, parent in waiting:  # grows as it goes: level after level
        for part in parts:
            inner = graph.induced_subgraph(part)
            communities.append(Community(level, parent, tuple(inner.vs["node"])))
            if len(part) > max_size and len(below := _parts(inner)) > 1:
                waiting.append((inner, below, level + 1, len(communities) - 1))
    return communities


def _parts(graph: Any) -> list[list[int]]:
    parts = graph.community_leiden(
        objective_function="modularity",
        weights="weight",
        resolution=1.0,
        beta=_RANDOMNESS,
        n_iterations=1,
    )
    return sorted((list(part) for part in parts), key=lambda part: (-len(part), part))


def graspologic() -> Any:
    """The library of GraphRAG's authors.

    Raises:
        MissingExtraError: it is not installed.
    """
    with needs_extra("leiden=graspologic"):
        import graspologic_native
    return graspologic_native


def _by_graspologic(whole: Any, max_size: int, seed: int, names: Sequence[str]) -> list[Community]:
    nodes = whole.vs["node"]
    rank = {node: (names[node] if names else "", node) for node in nodes}
    ends = ((nodes[edge.source], nodes[edge.target], edge["weight"]) for edge in whole.es)
    edges = [(*sorted((a, b), key=rank.__getitem__), float(weight)) for a, b, weight in ends]
    edges.sort(key=lambda edge: (rank[edge[0]], rank[edge[1]]))
    rows = graspologic().hierarchical_leiden(
        edges=[(str(a), str(b), weight) for a, b, weight in edges],
        resolution=1.0,
        randomness=_RANDOMNESS,
        iterations=1,
        use_modularity=True,
        max_cluster_size=max_size,
        seed=seed,
    )
    members: dict[tuple[int, int], list[int]] = {}
    parents: dict[int, int] = {}
    for row in rows:
        members.setdefault((row.level, row.cluster), []).append(int(row.node))
        parents[row.cluster] = -1 if row.parent_cluster is None else row.parent_cluster
    places = {cluster: place for place, (_, cluster) in enumerate(sorted(members))}
    return [
        Community(level, places.get(parents[cluster], -1), tuple(sorted(members[level, cluster])))
        for level, cluster in sorted(members)
    ]


def degrees(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The number of edges at each node."""
    counts: list[int] = np.bincount(np.array(edges, dtype=np.int64).ravel(), minlength=n).tolist()
    return counts
