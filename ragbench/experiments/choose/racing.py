"""Rules by which programs leave a race, and their error rates.

All programs answer the same questions, batch by batch, and the rules apply after each batch. A
program is eliminated if

- another active program has a significantly higher score (*beaten*),
- it is more expensive than another one, and its gain over that one is significantly smaller than
  required (*not worth it*). It is more expensive only if the 95 % interval of the ratio of their
  costs lies above 1 + `min_gain`: observed means miss runaway questions,
- it is significantly too slow: it exceeds the time limit for more than one question in twenty (*too
  slow*).

The tests are by betting (Waudby-Smith and Ramdas 2024, arXiv:2010.09686). Wealth starts at 1. If
the claim is false, its expectation does not grow, so it reaches 1/alpha with probability at most
alpha, for any number of looks. The best program is eliminated only if one of the K - 1 others wins
a false bet against it. So each bet has alpha / (K - 1), or half of it for each of the first two
rules if both are in use. If questions vary together, the unit of a bet is the sum over their
cluster, as a share of the maximum of the largest cluster. So large clusters have the weight of
their questions, and no document decides by itself.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragbench.metrics.stats.estimates import codes_of, estimate_mean

Floats = NDArray[np.float64]
Reason = Literal["beaten", "not worth it", "too slow"]

#: Shares of the capital that are staked side by side; the mean of the capitals is a fair bet too.
_STAKES = np.array([0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9])
#: The share of questions that may take longer than `max_p95`.
_SLOW_SHARE = 0.05


@dataclass(frozen=True)
class Rule:
    """Settings of a race.

    Attributes:
        min_gain: Smallest gain in score that justifies a more expensive program. 0 ignores costs.
        alpha: Bound on the probability that the race eliminates the best program, or one that gains
            `min_gain` over every cheaper one.
        max_p95: Longest 95th percentile of the time per question, in seconds. None allows any.
    """

    min_gain: float = 0.05
    alpha: float = 0.05
    max_p95: float | None = None


@dataclass(frozen=True)
class Elimination:
    """Eliminated program: the reason, the number of questions and the winner, if any."""

    program: int
    reason: Reason
    questions: int
    winner: int | None = None


class Race:
    """State of a race between `programs`, by their number.

    `largest` is the size of the largest cluster of all available questions.
    """

    def __init__(self, programs: int, rule: Rule, *, largest: int = 1) -> None:
        self.rule = rule
        self.running = list(range(programs))
        self.exits: list[Elimination] = []
        self.questions = 0
        self.largest = largest
        self._costs = np.zeros((programs, 0))
        self._clusters: list[Hashable] = []
        self._slow = np.zeros((len(_STAKES), programs))
        pairs = (len(_STAKES), programs, programs)
        self._better = np.zeros(pairs)
        self._worthless = np.zeros(pairs)

    @property
    def over(self) -> bool:
        """True if at most one program is left."""
        return len(self.running) < 2

    def look(
        self, scores: Floats, costs: Floats, seconds: Floats, clusters: Sequence[Hashable]
    ) -> list[Elimination]:
        """Add the next questions and return the programs that they eliminate.

        Args:
            scores: Scores in [0, 1], shape (programs, questions). NaN for eliminated programs.
            costs: Costs in one unit of all questions so far, shape (programs, questions so far),
                with their share of an index. NaN if unknown, and for eliminated programs.
            seconds: Seconds of each question, in the shape of `scores`.
            clusters: Cluster of each question. A cluster must be added in one call.
        """
        self.questions += scores.shape[1]
        self._costs = costs
        self._clusters += clusters
        codes = codes_of(clusters, len(clusters))
        totals = np.stack([np.bincount(codes, weights=row) for row in scores])
        difference = totals[:, None, :] - totals[None, :, :]
        self._better += _log_wealth_increments(difference / self.largest)
        if self.rule.min_gain:
            short = self.rule.min_gain * np.bincount(codes) - difference
            self._worthless += _log_wealth_increments(
                short / (self.largest * (1 + self.rule.min_gain))
            )
        before = len(self.exits)
        if self.rule.max_p95 is not None:
            late = np.where(np.isnan(seconds), 0.0, seconds > self.rule.max_p95)
            self._slow += _log_wealth_increments((late - _SLOW_SHARE) / _SLOW_SHARE)
            self._drop_slow()
        self._drop_beaten()
        if self.rule.min_gain:
            self._drop_not_worth_it()
        return self.exits[before:]

    def cheapest_first(self) -> list[int]:
        """Return the active programs by mean cost. Those of unknown cost come last."""
        means = self._costs.sum(axis=1) / max(1, self.questions)
        costs = np.where(np.isnan(means), np.inf, means)
        return sorted(self.running, key=lambda program: (costs[program], program))

    def _costs_more(self, program: int, rival: int) -> bool:
        """Return True if the 95 % interval of the cost ratio lies above 1 + `min_gain` (t test)."""
        beyond = self._costs[program] - (1 + self.rule.min_gain) * self._costs[rival]
        estimate = estimate_mean(beyond, None, self._clusters)
        return estimate is not None and estimate.interval().low > 0

    def _threshold(self) -> float:
        rules = 2 if self.rule.min_gain else 1
        return math.log(rules * (len(self._costs) - 1) / self.rule.alpha)

    def _drop(self, program: int, reason: Reason, winner: int | None = None) -> None:
        self.running.remove(program)
        self.exits.append(Elimination(program, reason, self.questions, winner))

    def _drop_slow(self) -> None:
        capital = _log_wealth(self._slow)
        limit = math.log(len(self._costs) / self.rule.alpha)
        for program in list(self.running):
            if capital[program] >= limit:
                self._drop(program, "too slow")

    def _drop_beaten(self) -> None:
        capital = _log_wealth(self._better)
        standing = list(self.running)
        for program in standing:
            rivals = [rival for rival in standing if rival != program]
            winner = max(rivals, key=lambda rival: capital[rival, program], default=program)
            if winner != program and capital[winner, program] >= self._threshold():
                self._drop(program, "beaten", winner)

    def _drop_not_worth_it(self) -> None:
        capital = _log_wealth(self._worthless)
        cheapest = self.cheapest_first()
        for place, program in reversed(list(enumerate(cheapest))):
            for rival in cheapest[:place]:
                if capital[program, rival] < self._threshold():
                    continue
                if self._costs_more(program, rival):
                    self._drop(program, "not worth it", rival)
                    break


def _log_wealth_increments(units: Floats) -> Floats:
    """Return the log wealth (stakes, ...) that bets on positive `units` (..., bets) gain.

    Bets of an eliminated program are NaN and gain nothing.
    """
    filled = np.nan_to_num(units)
    return np.stack([np.log1p(stake * filled).sum(axis=-1) for stake in _STAKES])


def _log_wealth(winnings: Floats) -> Floats:
    """Return the logarithm of the mean wealth over stakes."""
    capital: Floats = np.logaddexp.reduce(winnings, axis=0) - math.log(len(_STAKES))
    return capital
