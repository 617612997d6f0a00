"""Soft clusters of vectors, as RAPTOR groups the nodes of a layer (Sarthi et al. 2024).

Global clusters first, then local ones inside each: dimensions are reduced, a Gaussian mixture is
fitted with as many components as the Bayesian information criterion prefers, and a node belongs to
every cluster that claims it with some probability. RAPTOR reduces by UMAP; here it is PCA, which
needs no further package and is deterministic. A node always belongs to its likeliest cluster, so
that none drops out of the tree.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ragbench.errors import needs_extra
from ragbench.retrievers.embedders import Vectors

#: The mixture is not asked to be better than this; the covariance is kept away from singular.
_REGULARISATION = 1e-6


#: Dimensions clustered in, components tried at the most, and the chance that puts a row in a
#: cluster, as in RAPTOR's code; its random numbers are another library's.
_DIMENSIONS, _COMPONENTS, _MEMBERSHIP, _SEED = 10, 50, 0.1, 224


def group(vectors: Vectors, tokens: Sequence[int], *, max_tokens: int) -> list[list[int]]:
    """Rows of `vectors` by cluster, each in ascending order; a row may be in several.

    `tokens` are the sizes of the rows' texts; a cluster of more than `max_tokens` is divided
    again, in the order of its rows where the mixture does not divide it.
    """
    clusters: dict[tuple[int, ...], None] = {}
    for members in _soft(vectors):
        for inner in _soft(vectors[members]):
            rows = [members[i] for i in inner]
            clusters.update(dict.fromkeys(map(tuple, _fitting(rows, vectors, tokens, max_tokens))))
    return [list(rows) for rows in clusters]


def _fitting(
    rows: list[int], vectors: Vectors, tokens: Sequence[int], limit: int
) -> list[list[int]]:
    if len(rows) == 1 or sum(tokens[row] for row in rows) <= limit:
        return [rows]
    parts = [[rows[i] for i in part] for part in _soft(vectors[rows])]
    if any(len(part) == len(rows) for part in parts):
        return _runs(rows, tokens, limit)
    return [fit for part in parts for fit in _fitting(part, vectors, tokens, limit)]


def _runs(rows: list[int], tokens: Sequence[int], limit: int) -> list[list[int]]:
    """`rows` cut into runs of at most `limit` tokens, one row at the least."""
    runs: list[list[int]] = [[]]
    size = 0
    for row in rows:
        if runs[-1] and size + tokens[row] > limit:
            runs.append([])
            size = 0
        runs[-1].append(row)
        size += tokens[row]
    return runs


def _soft(vectors: Vectors) -> list[list[int]]:
    """Clusters of all rows; one of them all where there are too few to reduce."""
    n = len(vectors)
    if n <= _DIMENSIONS + 1:
        return [list(range(n))]
    with needs_extra("a tree of summaries"):
        from sklearn.decomposition import PCA
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits
    size = min(_DIMENSIONS, n - 2, vectors.shape[1])
    # Threads gain nothing on matrices this small, and where other work has the cores each waits
    # for the others: 30 ms for a step of some microseconds.
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer distinct vectors than components, or no variance: the fit is valid all the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        reduced = PCA(size, random_state=_SEED).fit_transform(vectors.astype(np.float64))
        chances = _mixture(reduced)
    belongs = chances > _MEMBERSHIP
    belongs[np.arange(n), chances.argmax(axis=1)] = True
    clusters = [np.flatnonzero(column).tolist() for column in belongs.T]
    return [cluster for cluster in clusters if cluster]


def _mixture(reduced: np.ndarray) -> np.ndarray:
    """Chances `(n, components)` under the mixture of the lowest information criterion."""
    from sklearn.mixture import GaussianMixture

    def fit(components: int) -> GaussianMixture:
        mixture = GaussianMixture(components, random_state=_SEED, reg_covar=_REGULARISATION)
        return mixture.fit(reduced)

    distinct = len(np.unique(reduced, axis=0))
    most = max(1, min(_COMPONENTS, distinct, len(reduced) - 1))
    best = min((fit(components) for components in range(1, most + 1)), key=lambda m: m.bic(reduced))
    chances: np.ndarray = best.predict_proba(reduced)
    return chances
