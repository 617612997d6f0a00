"""Arms of several seeds: the optimizer, not one compiled program, is what a difference is of.

Programs compiled with other seeds differ. A statement about the optimizer treats the seed as a
random effect, crossed with the questions: the variance of the difference is that of the questions
plus that of the mean over seeds. Standard error by the two mean squares of the two-way analysis of
variance (without subtracting the residual, which errs on the safe side), degrees of freedom by
Satterthwaite (1946).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragbench.metrics.stats.estimates import Bounds, Floats, MeanEstimate, estimate_mean
from ragbench.metrics.stats.power import SHARE_OF_DF

#: With fewer seeds, their variance cannot be told: the difference is of these programs alone.
LEAST_SEEDS = 3


@dataclass(frozen=True)
class VarianceSplit:
    """Standard deviations of what one score of one seed differs by.

    `question`: between questions, which part the arms alike; `seed`: between the means of seeds,
    that is of programs; `sampling`: the rest, one question answered by one program.
    """

    question: float
    seed: float
    sampling: float


def estimate_difference(
    a: Floats, b: Floats, bounds: Bounds,
    *, clusters: Sequence[Hashable] | None = None, random_seeds: bool = True,
) -> MeanEstimate | None:  # fmt: skip
    """The mean of b minus a, both `(seeds, questions)`; None for fewer than two questions.

    With `random_seeds`, arms of at least `LEAST_SEEDS` seeds stand for all seeds there could be;
    else the estimate is of the difference between exactly these.
    """
    of_questions = estimate_mean(b.mean(axis=0) - a.mean(axis=0), bounds, clusters)
    if of_questions is None or not random_seeds:
        return of_questions
    own = of_questions.standard_error**2
    seeded = [arm for arm in (a, b) if len(arm) >= LEAST_SEEDS]
    parts = [float(arm.mean(axis=1).var(ddof=1)) / len(arm) for arm in seeded]
    of_seeds = sum(parts)
    if of_seeds < 1e-24:
        return of_questions
    spread = own**2 / of_questions.df + sum(
        part**2 / (SHARE_OF_DF * (len(arm) - 1)) for part, arm in zip(parts, seeded, strict=True)
    )
    return replace(
        of_questions,
        standard_error=math.sqrt(own + of_seeds),
        df=max(min(len(arm) - 1.0 for arm in seeded), (own + of_seeds) ** 2 / spread),
        of_seeds=of_seeds,
    )


def split_variance(arm: Floats, other: Floats) -> VarianceSplit | None:
    """How `arm` `(seeds, questions)` varies against the mean of `other`; None for one seed.

    Components of the two-way analysis of variance; one that comes out negative is 0.
    """
    d = arm - other.mean(axis=0)
    seeds, n = d.shape
    if seeds < 2 or n < 2:
        return None
    grand, by_seed, by_question = d.mean(), d.mean(axis=1), d.mean(axis=0)
    rest = d - by_seed[:, None] - by_question[None, :] + grand
    of_seeds = n * float(((by_seed - grand) ** 2).sum()) / (seeds - 1)
    of_questions = seeds * float(((by_question - grand) ** 2).sum()) / (n - 1)
    residual = float((rest**2).sum()) / ((seeds - 1) * (n - 1))

    def root(variance: float) -> float:
        return float(np.sqrt(max(0.0, variance)))

    return VarianceSplit(
        question=root((of_questions - residual) / seeds),
        seed=root((of_seeds - residual) / n),
        sampling=root(residual),
    )
