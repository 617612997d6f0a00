"""Three ways through a summary tree: RAPTOR's two, and HIRO's.

RAPTOR: Sarthi et al. 2024 (arXiv:2401.18059). HIRO: Goel and Chandak 2024 (arXiv:2406.09979). All
work on a score per node, by default its cosine with the query, and none asks an LM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

KeepParent = Literal["any_fail", "none_pass"]


@dataclass(frozen=True)
class Shape:
    """Nodes by layer, leaves first, and the children of each node, empty for a leaf."""

    layers: Sequence[Sequence[int]]
    children: Sequence[Sequence[int]]

    @property
    def top(self) -> Sequence[int]:
        """The nodes of the top layer."""
        return self.layers[-1] if self.layers else ()


@dataclass(frozen=True)
class Selection:
    """Nodes kept; `empty` where no node passed the first threshold."""

    nodes: tuple[int, ...]
    empty: bool = False


def collapsed(scores: Floats, *, k: int) -> Selection:
    """The `k` best nodes of all layers, best first."""
    return Selection(tuple(_best(range(len(scores)), scores)[:k]))


def traversal(scores: Floats, shape: Shape, *, k: int) -> Selection:
    """The `k` best of the top layer, then of the children of those, and so on, top first."""
    nodes = shape.top
    kept: dict[int, None] = {}
    while nodes:
        chosen = _best(nodes, scores)[:k]
        kept.update(dict.fromkeys(chosen))
        nodes = sorted({child for node in chosen for child in shape.children[node]})
    return Selection(tuple(kept))


def hiro(
    scores: Floats,
    shape: Shape,
    *,
    selection: float,
    delta: float,
    keep_parent: KeepParent = "any_fail",
) -> Selection:
    """Nodes down to which similarity to the query keeps rising, most similar first.

    From each node of the top layer above `selection`, descend into the children above it that
    are more than `delta` better than their parent. A node is kept where no child is, and with
    `keep_parent="any_fail"` also where only some are. Where no node of the top layer is above
    `selection`, the best one starts alone.
    """
    start = _best(shape.top, scores)
    roots = [node for node in start if scores[node] > selection]
    walk = _Walk(scores, shape, selection, delta, keep_parent)
    for root in roots or start[:1]:
        walk.visit(root)
    return Selection(tuple(_best(walk.kept, scores)), empty=not roots)


@dataclass
class _Walk:
    scores: Floats
    shape: Shape
    selection: float
    delta: float
    keep_parent: KeepParent
    kept: dict[int, None] = field(default_factory=dict)
    visited: set[int] = field(default_factory=set)

    def visit(self, node: int) -> None:
        if node in self.visited:  # a soft cluster gives a node several parents
            return
        self.visited.add(node)
        children = self.shape.children[node]
        good = [child for child in children if self._passes(child, node)]
        if not good or (self.keep_parent == "any_fail" and len(good) < len(children)):
            self.kept[node] = None
        for child in good:
            self.visit(child)

    def _passes(self, child: int, parent: int) -> bool:
        score = self.scores[child]
        return bool(score > self.selection and score - self.scores[parent] > self.delta)


def _best(nodes: Iterable[int], scores: Floats) -> list[int]:
    return sorted(nodes, key=lambda node: (-scores[node], node))
