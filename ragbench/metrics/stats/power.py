"""Power and sample size: the chance that a new run detects a difference.

Power follows the noncentral t distribution (Cohen 1988), with the pseudo-values that draw the mean
towards 0. `benchmarks/calibration.py` compares it with simulated verdicts. Functions import
`scipy.special` where they use it, because loading it takes longer than starting Python and most
commands do not need it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

POWER = 0.8
ALPHA = 0.05
#: Satterthwaite's degrees of freedom are too high with few seeds, because they are computed from
#: the observed variances. With this share of the seeds' degrees of freedom, false claims at a
#: nominal 5 % are at most 6.0 % (3 seeds, any ratio of the two variances). With all of them, 7.8 %.
SHARE_OF_DF = 0.6
#: Degrees of freedom from which a series gives the quantiles of t.
_SERIES_DF = 200
#: Upper limits of the search for a number of questions or seeds.
_MOST_QUESTIONS, _MOST_SEEDS = 10**9, 1_000


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Return the `p` quantile of the t distribution.

    Args:
        p: Probability, in (0, 1).
        df: Degrees of freedom, > 0. From 200 on, a series replaces scipy, which takes longer to
            import than a summary to compute. Its relative error is below 1e-10 for p up to 0.995.
    """
    if df < _SERIES_DF:
        from scipy.special import stdtrit

        return float(stdtrit(df, p))
    # Abramowitz and Stegun (1964), 26.7.5.
    z = NormalDist().inv_cdf(p)
    s = z * z
    series = (s + 1) / 4 / df
    series += ((5 * s + 16) * s + 3) / 96 / df**2
    series += (((3 * s + 19) * s + 17) * s - 15) / 384 / df**3
    series += ((((79 * s + 776) * s + 1482) * s - 1920) * s - 945) / 92160 / df**4
    return z * (1 + series)


def t_tail(t: float, df: float) -> float:
    """Return the probability that a t variable is above `t`.

    Args:
        t: Threshold.
        df: Degrees of freedom, > 0.
    """
    from scipy.special import stdtr

    return float(stdtr(df, -t))


def f_tail(f: float, df: float, df_error: float) -> float:
    """Return the probability that an F variable is above `f`.

    Args:
        f: Threshold.
        df: Degrees of freedom of the numerator.
        df_error: Degrees of freedom of the denominator.
    """
    from scipy.special import fdtrc

    return float(fdtrc(df, df_error, f))


def t_power(shift: float, df: float, *, alpha: float = ALPHA) -> float:
    """Return the power of a two-sided t test of a mean of 0.

    Args:
        shift: True mean divided by its standard error.
        df: Degrees of freedom, >= 1.
        alpha: Level of the test, in (0, 1).
    """
    from scipy.special import nctdtr

    shift = abs(shift)
    critical = t_quantile(1 - alpha / 2, df)
    below = float(nctdtr(df, shift, critical))
    wrong_way = float(nctdtr(df, shift, -critical))
    # NaN means that the probability is too small to compute.
    return min(1.0, max(0.0, 1 - below + (0.0 if math.isnan(wrong_way) else wrong_way)))


@dataclass(frozen=True)
class PlannedTest:
    """Test of a mean difference on the questions of a new run.

    Attributes:
        alpha: Level of the test, corrected for its family.
        reach: Largest difference that one question can have.
        design_effect: Ratio of the variance to that of independent questions.
        cluster_size: Number of questions per degree of freedom.
        seed_variance: Variance of programs' means between seeds, 0 if they are not a random effect.
        seeds: Number of seeds.
    """

    alpha: float = ALPHA
    reach: float = 1.0
    design_effect: float = 1.0
    cluster_size: float = 1.0
    seed_variance: float = 0.0
    seeds: int = 1

    def power(self, difference: float, variance: float, n: float) -> float:
        """Return the probability that the test detects a true mean difference.

        Args:
            difference: True mean of the values.
            variance: Variance of the values.
            n: Number of questions.
        """
        total = n + 2  # Includes a value at each bound, as in `estimate_mean`.
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
        """Return the smallest number of questions that detect a difference with 80 % power.

        Args:
            difference: True mean of the values.
            variance: Variance of the values.

        Returns:
            The number of questions. None if no number suffices.
        """
        return _least(lambda n: self.power(difference, variance, n), 2, _MOST_QUESTIONS)

    def more_seeds(self, difference: float, variance: float, n: float) -> int | None:
        """Return the smallest number of seeds that detect a difference with 80 % power.

        Args:
            difference: True mean of the values.
            variance: Variance of the values.
            n: Number of questions.

        Returns:
            The number of seeds. None if no number suffices.
        """

        def power(seeds: int) -> float:
            return replace(self, seeds=seeds).power(difference, variance, n)

        return _least(power, 3, _MOST_SEEDS)

    def detectable(self, variance: float, seen: float, n: float) -> float | None:
        """Return the smallest true difference that the test detects with 80 % power.

        A difference larger than `seen` is assumed to come from further answers that change
        completely, which also add variance.

        Args:
            variance: Variance of the observed values.
            seen: Observed mean of the values.
            n: Number of questions.

        Returns:
            The difference. None if it would exceed `reach`.
        """
        square = variance + seen**2

        def power(difference: float) -> float:
            changed = self.reach * max(0.0, difference - abs(seen))
            return self.power(difference, max(0.0, square + changed - difference**2), n)

        if power(self.reach) < POWER:
            return None
        return bisect(lambda difference: power(difference) >= POWER, 0.0, self.reach)[1]


def bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Find where a condition becomes true, by 40 bisections.

    Args:
        holds: Condition that changes once between `low` and `high`.
        low: Number that does not satisfy it.
        high: Number that satisfies it.

    Returns:
        Two nearby numbers: the lower one does not satisfy it, the upper one does.
    """
    for _ in range(40):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return low, high


def _least(power: Callable[[int], float], start: int, most: int) -> int | None:
    """Return the smallest whole number from `start` to `most` with 80 % `power`, or None."""
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
