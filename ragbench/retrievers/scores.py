"""The best of many scores, ties in corpus order, and two ways to make scores comparable."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ragbench.retrievers.base import Passage

Floats = npt.NDArray[np.float32]
#: Positions with their scores, best first.
Hits = list[tuple[int, float]]


def best(scores: Floats, k: int) -> Hits:
    """The positions of the `k` highest scores above 0 and those scores, best first."""
    positive = np.flatnonzero(scores > 0)
    return top(scores[positive], k, positive)


def top(scores: Floats, k: int, positions: npt.NDArray[Any] | None = None) -> Hits:
    """The `k` highest of `scores`, whatever their sign, best first, as (position, score).

    `positions` are those of the scores, in ascending order; by default 0, 1, 2, ...
    """
    kept = np.arange(len(scores)) if positions is None else positions
    if 0 < k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        mask = scores >= threshold
        scores, kept = scores[mask], kept[mask]
    order = np.argsort(-scores, kind="stable")[: max(k, 0)]
    return list(zip(kept[order].tolist(), scores[order].tolist(), strict=True))


def ordered(positions: Any, scores: Any, k: int) -> Hits:
    """The `k` highest of `scores` in any order, best first, those that tie by their positions."""
    order = np.lexsort((positions, -scores))[:k]
    return list(zip(positions[order].tolist(), scores[order].tolist(), strict=True))


def reciprocal_ranks(side: Sequence[Passage], *, rrf_k: float) -> dict[str, float]:
    """1 / (rrf_k + rank) with ranks from 1, by pid."""
    return {p.pid: 1 / (rrf_k + rank) for rank, p in enumerate(side, start=1)}


def stretched(side: Sequence[Passage]) -> dict[str, float]:
    """Scores stretched to [0, 1], by pid; all 1 where they are equal."""
    if not side:
        return {}
    low, high = min(p.score for p in side), max(p.score for p in side)
    if high == low:
        return {p.pid: 1.0 for p in side}
    return {p.pid: (p.score - low) / (high - low) for p in side}
