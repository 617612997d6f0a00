"""Complete ties at the end of a ranking, and how two rankings are put together."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ragbench.retrievers.base import Floats, Hits, ordered

#: Positions and scores of passages, best first, ties in any order.
Found = tuple[npt.NDArray[np.int64], Floats]


def whole_ties(
    find: Callable[[Sequence[int], int], Sequence[Found]], n_queries: int, k: int, most: int
) -> list[Hits]:
    """Return the `k` best hits of each query, ties in corpus order.

    An engine cuts ties at the end arbitrarily. This asks for more hits until the tie is complete.

    Args:
        find: Returns at most `depth` hits for some queries, given by number.
        n_queries: Number of queries.
        k: Number of hits.
        most: Maximum depth of a search.
    """
    depth = max(k, min(most, k + 8))
    results = list(find(range(n_queries), depth))
    while depth < most:
        cut = []
        for i, (places, scores) in enumerate(results):
            if len(places) == depth and scores[-1] == scores[k - 1]:
                cut.append(i)
        if not cut:
            break
        depth = min(most, 8 * depth)
        for i, deeper in zip(cut, find(cut, depth), strict=True):
            results[i] = deeper
    return [ordered(places, scores, k) for places, scores in results]


def fused(sides: Sequence[tuple[float, Mapping[int, float]]], k: int) -> Hits:
    """Return the positions with the highest weighted sums of all sides.

    Args:
        sides: Weight of each side, and its values by position.
        k: Maximum number of positions.
    """
    sums: dict[int, float] = {}
    for weight, values in sides:
        for place, value in values.items() if weight else ():
            sums[place] = sums.get(place, 0.0) + weight * value
    return sorted(sums.items(), key=lambda hit: (-hit[1], hit[0]))[:k]


def by_rank(side: Hits, rrf_k: float) -> dict[int, float]:
    """Map each position to 1 / (rrf_k + rank), with ranks from 1.

    Args:
        side: Positions of one side, best first.
        rrf_k: Constant of reciprocal rank fusion.
    """
    return {place: 1 / (rrf_k + rank) for rank, (place, _) in enumerate(side, start=1)}


def min_max(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Scale `scores` to [0, 1]. Return all 1 if they are equal."""
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        return values
    low = values.min()
    high = values.max()
    if high > low:
        scaled: npt.NDArray[np.float64] = (values - low) / (high - low)
        return scaled
    return np.ones_like(values)
