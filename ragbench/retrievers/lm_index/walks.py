"""Personalized PageRank on a weighted graph without directions, by igraph.

As HippoRAG 2 and LinearRAG do it: a walk that goes on with probability `damping`, along edges in
proportion to their weights, and otherwise starts again at a node drawn from `reset`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ragbench.errors import needs_extra

Floats = npt.NDArray[np.float64]
#: Pairs of nodes, shape `(m, 2)`, which may repeat: parallel edges add up.
Edges = npt.NDArray[np.int32]


class WalkGraph:
    """Nodes 0 to n - 1 and weighted edges, which may lie on disk until the first walk."""

    def __init__(self, n: int, edges: Edges, weights: npt.NDArray[np.float32]) -> None:
        self.n, self.edges, self.weights = n, edges, weights

    @cached_property
    def _graph(self) -> Any:
        with needs_extra("a walk on a graph"):
            import igraph
        graph = igraph.Graph(n=self.n, edges=np.asarray(self.edges), directed=False)
        graph.es["weight"] = np.asarray(self.weights, dtype=np.float64).tolist()
        return graph

    def pagerank(self, reset: Floats, *, damping: float) -> Floats:
        """The share of each node in the walk, shape `(n,)`, which sums to 1.

        Negative entries of `reset`, shape `(n,)`, count as 0; where all do, every share is 0.
        """
        start = np.maximum(np.nan_to_num(reset), 0)
        if not start.sum() > 0:
            return np.zeros(self.n)
        shares = self._graph.personalized_pagerank(
            damping=damping, directed=False, weights="weight", reset=start, implementation="prpack"
        )
        return np.asarray(shares, dtype=np.float64)


def min_max(scores: npt.NDArray[np.floating]) -> Floats:
    """`scores` moved and scaled to [0, 1]; all 1 where they are equal."""
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones_like(values)


def best_first(scores: npt.NDArray[np.floating], k: int) -> list[int]:
    """Positions of the `k` highest scores, best first, ties in order of position."""
    order: list[int] = np.argsort(-np.asarray(scores), kind="stable")[: max(k, 0)].tolist()
    return order
