"""Power of the tests here: how sure a new run is to show a difference, and how much it takes.

By the noncentral t distribution (Cohen 1988), with the pseudo-values that draw the mean towards 0.
`benchmarks/calibration.py` measures how nearly verdicts reach it. `scipy.special` is imported where
it is used, since to load it takes longer than to start Python and most commands need none of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

POWER = 0.8
ALPHA = 0.05
#: Satterthwaite's degrees of freedom are too many with few seeds, since they are computed from the
#: variances that were seen. With this share of the seeds' own, false claims at a nominal 5 % are
#: 6.0 % at most (3 seeds, any ratio of the two variances); with the whole, 7.8 %.
SHARE_OF_DF = 0.6
#: More questions or seeds than anybody will ask for.
_MOST_QUESTIONS, _MOST_SEEDS = 10**9, 1_000


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """What a t variable of `df` degrees of freedom (above 0) is below with chance `p` in (0, 1)."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p))


def t_tail(t: float, df: float) -> float:
    """The chance that a t variable of `df` degrees of freedom is above `t`."""
    from scipy.special import stdtr

    return float(stdtr(df, -t))


def f_tail(f: float, df: float, df_error: float) -> float:
    """The chance that an F variable of these degrees of freedom is above `f`."""
    from scipy.special import fdtrc

    return float(fdtrc(df, df_error, f))


def t_power(shift: float, df: float, *, alpha: float = ALPHA) -> float:
    """The chance that a two-sided t test rejects 0.

    `shift` is the true mean over its standard error, `df` the degrees of freedom (at least 1).
    """
    from scipy.special import nctdtr

    shift = abs(shift)
    critical = t_quantile(1 - alpha / 2, df)
    below = float(nctdtr(df, shift, critical))
    wrong_way = float(nctdtr(df, shift, -critical))
    # Where it is NaN, the chance is too small to be worked out.
    return min(1.0, max(0.0, 1 - below + (0.0 if math.isnan(wrong_way) else wrong_way)))


@dataclass(frozen=True)
class PlannedTest:
    """The test of a mean difference as a new run would make it.

    Attributes:
        alpha: Level of the test, corrected for its family.
        reach: Largest difference that one question can have.
        design_effect: How many times larger the variance is than that of single questions.
        cluster_size: Number of questions that make one degree of freedom.
        seed_variance: Variance of programs' means between seeds, 0 if they are no random effect.
        seeds: Number of seeds.
    """

    alpha: float = ALPHA
    reach: float = 1.0
    design_effect: float = 1.0
    cluster_size: float = 1.0
    seed_variance: float = 0.0
    seeds: int = 1

    def power(self, difference: float, variance: float, n: float) -> float:
        """Return the chance that `n` questions show a true mean `difference`.

        Args:
            difference: True mean of the values.
            variance: Variance of the values.
            n: Number of questions.
        """
        total = n + 2  # with a value at either end, as `estimate_mean` has it
        if n < 2 or total < 2 * self.cluster_size:
            return 0.0
        centre = n * difference / total
        spread = n * self.design_effect * (variance + (difference - centre) ** 2)
        spread += (self.reach - centre) ** 2 + (self.reach + centre) ** 2
        squared = spread / (total - 1) / total
        df = total / self.cluster_size - 1
        df = max(1.0, df)
        if self.seed_variance:
            of_seeds = self.seed_variance / self.seeds
            least = self.seeds - 1.0
            ratio = squared**2 / df + of_seeds**2 / (SHARE_OF_DF * least)
            squared, df = squared + of_seeds, max(least, (squared + of_seeds) ** 2 / ratio)
        return t_power(centre / math.sqrt(squared), df, alpha=self.alpha)

    def questions(self, difference: float, variance: float) -> int | None:
        """The fewest questions that show `difference` with 80 % power; None where none would."""
        return _least(lambda n: self.power(difference, variance, n), 2, _MOST_QUESTIONS)

    def more_seeds(self, difference: float, variance: float, n: float) -> int | None:
        """The fewest seeds with which `n` questions show `difference`; None where none would."""

        def shown(seeds: int) -> float:
            return replace(self, seeds=seeds).power(difference, variance, n)

        return _least(shown, 3, _MOST_SEEDS)

    def detectable(self, variance: float, seen: float, n: float) -> float | None:
        """The least true difference that `n` questions show with 80 % power.

        `variance` is that of the values whose mean `seen` was observed. A larger difference comes
        of further answers that change wholly, and has their variance too. None beyond `reach`.
        """
        square = variance + seen**2

        def shown(difference: float) -> float:
            changed = self.reach * max(0.0, difference - abs(seen))
            return self.power(difference, max(0.0, square + changed - difference**2), n)

        if shown(self.reach) < POWER:
            return None
        return bisect(lambda difference: shown(difference) >= POWER, 0.0, self.reach)[1]


def bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The last number that `holds` is not true of, and the first that it is, nearly.

    It is not true of `low`, true of `high`, and changes once between them.
    """
    for _ in range(40):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return low, high


def _least(power: Callable[[int], float], start: int, most: int) -> int | None:
    """The least whole number from `start` to `most` whose `power` reaches 80 %, or None."""
    high = start
    while power(high) < POWER:
        if high >= most:
            return None
        high *= 2
    low = high // 2 if high > start else start - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high
