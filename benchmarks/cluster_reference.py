"""The cluster-robust test to which `benchmarks.calibration` compares the power of ours."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.draws import Floats


def reference_cr2(values: Floats, sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Return which sets a cluster-robust t test calls different from 0 at 5 %.

    It is Bell and McCaffrey (2002) for the regression on a constant: the residuals of a document
    of g of n questions are divided by sqrt(1 - g / n), and the degrees of freedom are
    Satterthwaite's under independence.

    Args:
        values: Differences, shape (sets, questions).
        sizes: Number of questions of each document.
    """
    counts = np.asarray(sizes, dtype=float)
    n = counts.sum()
    starts = np.concatenate([[0], np.cumsum(counts[:-1])]).astype(int)
    means = values.mean(axis=1)
    sums = np.add.reduceat(values, starts, axis=1) - means[:, None] * counts
    variances = (sums**2 / (1 - counts / n)).sum(axis=1) / n**2
    weight = 1 / (n * np.sqrt(1 - counts / n))
    matrix = np.diag(weight**2 * counts) - np.outer(weight * counts, weight * counts) / n
    df = np.trace(matrix) ** 2 / (matrix**2).sum()
    found: NDArray[np.bool_] = np.abs(means) > stats.t.ppf(0.975, df) * np.sqrt(variances)
    return found
