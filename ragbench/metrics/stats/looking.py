"""What it costs to look again and again: power of bets against that of one look at the end."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragbench.metrics.stats.estimates import Clusters, Floats, anytime_p, codes_of, estimate_mean
from ragbench.metrics.stats.power import ALPHA

#: Sets that are drawn; the standard error of a share is then at most 4 points.
_SETS = 200


@dataclass(frozen=True)
class PriceOfLooking:
    """How often a difference like the one seen is shown, by looks and by one look at the end."""

    by_looks: float
    by_one: float


def price_of_looking(
    differences: Floats,
    reach: float,
    looks: Sequence[int],
    clusters: Clusters = None,
    *,
    seed: int = 0,
) -> PriceOfLooking | None:
    """The price for the set at hand, by simulation; None for fewer than two clusters.

    Sets of as many questions as the last of `looks` are drawn from the clusters of `differences`
    `(n,)`, each within ±`reach`, with replacement.
    """
    groups = codes_of(clusters, len(differences))
    drawn_from = [differences[groups == code] for code in range(max(groups) + 1)]
    if len(drawn_from) < 2:
        return None
    means = np.array([values.mean() for values in drawn_from])
    size = len(differences) / len(drawn_from)
    counts = [max(1, round(look / size)) for look in looks]
    rng = np.random.default_rng(seed)
    by_looks = by_one = 0
    for _ in range(_SETS):
        chosen = rng.integers(len(drawn_from), size=counts[-1])
        by_looks += any(anytime_p(means[chosen[:count]], reach) <= ALPHA for count in counts)
        values = np.concatenate([drawn_from[at] for at in chosen])
        labels = np.repeat(np.arange(len(chosen)), [len(drawn_from[at]) for at in chosen])
        estimate = estimate_mean(values, (-reach, reach), labels.tolist())
        by_one += estimate is not None and estimate.p_value() <= ALPHA
    return PriceOfLooking(by_looks / _SETS, by_one / _SETS)
