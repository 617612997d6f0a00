"""When a program leaves a race, and how sure that is.

Programs answer the same questions, block by block, and one may look after each. A program is out

- where another one that is still in is shown to score more (*beaten*),
- where it is dearer than another one and is shown to gain less over it than it would have to
  (*not worth it*),
- where it is shown to take longer than it may, for more than one question in twenty (*too slow*).

"Shown" is by betting (Waudby-Smith and Ramdas 2024, arXiv:2010.09686): capital that starts at 1
and is expected to stay there or to fall if the claim is false reaches 1/alpha at most with chance
alpha, however often one looks. For the best program to be lost, one of the K - 1 others has to win
a false bet against it, so each bet has alpha / (K - 1), half of it for each of the first two rules
where both are in use. Where questions vary together, the unit of a bet is the sum over their
cluster, as a share of what the largest cluster can reach: large clusters count as much as their
questions do, and no document can decide by itself.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reason = Literal["beaten", "not worth it", "too slow"]

#: Shares of the capital that are staked side by side; the mean of the capitals is a fair bet too.
_STAKES = np.array([0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9])
#: The share of questions that may take longer than `max_p95`.
_SLOW_SHARE = 0.05


@dataclass(frozen=True)
class Rule:
    """What a race is decided by.

    `worth` is the least gain in score that pays for a dearer program; 0 for none, so that only a
    better score counts. `alpha` bounds the chance that the best program is lost, or one that gains
    `worth` over every cheaper one. `max_p95` is in seconds; None for any time.
    """

    worth: float = 0.05
    alpha: float = 0.05
    max_p95: float | None = None


@dataclass(frozen=True)
class Block:
    """What the programs did on some questions; `scores` and `seconds` are (programs, questions).

    `scores` are in [0, 1], and NaN for programs that are out. `costs` (programs,) are the mean cost
    of a question so far, in one unit, and NaN for programs that are out. `clusters` has the cluster
    of each question: all questions of a cluster have to be in one block.
    """

    scores: Floats
    costs: Floats
    seconds: Floats
    clusters: Sequence[Hashable]


@dataclass(frozen=True)
class Exit:
    """A program that left: why, at which question, and the program that it lost to, if any."""

    program: int
    reason: Reason
    questions: int
    winner: int | None = None


class Race:
    """The state of a race between `programs`, by their number.

    `largest` is the size of the largest cluster of all questions that may be asked.
    """

    def __init__(self, programs: int, rule: Rule, *, largest: int = 1) -> None:
        self.rule = rule
        self.running = list(range(programs))
        self.exits: list[Exit] = []
        self.questions = 0
        self._largest = largest
        self._costs = np.zeros(programs)
        self._slow = np.zeros((len(_STAKES), programs))
        pairs = (len(_STAKES), programs, programs)
        self._better = np.zeros(pairs)
        self._worthless = np.zeros(pairs)

    @property
    def over(self) -> bool:
        """Whether one program is left, or none."""
        return len(self.running) < 2

    def look(self, block: Block) -> list[Exit]:
        """Takes the next block in, and returns the programs that leave by it."""
        self.questions += block.scores.shape[1]
        self._costs = block.costs
        totals, sizes = _by_cluster(block)
        difference = totals[:, None, :] - totals[None, :, :]
        self._better += _winnings(difference / self._largest)
        if self.rule.worth:
            short = self.rule.worth * sizes - difference
            self._worthless += _winnings(short / (self._largest * (1 + self.rule.worth)))
        if self.rule.max_p95 is not None:
            late = np.where(np.isnan(block.seconds), 0.0, block.seconds > self.rule.max_p95)
            self._slow += _slow_winnings(late)
        exits = [*self._too_slow(), *self._beaten(), *self._not_worth_it()]
        self.exits += exits
        return exits

    def cheapest_first(self) -> list[int]:
        """Returns the programs that are in, by mean cost; those of unknown cost come last."""
        costs = np.where(np.isnan(self._costs), np.inf, self._costs)
        return sorted(self.running, key=lambda program: (costs[program], program))

    def _threshold(self, rules: int) -> float:
        rivals = self._costs.size - 1
        return math.log(rules * rivals / self.rule.alpha)

    def _too_slow(self) -> list[Exit]:
        if self.rule.max_p95 is None:
            return []
        capital = np.logaddexp.reduce(self._slow, axis=0) - math.log(len(_STAKES))
        limit = math.log(self._costs.size / self.rule.alpha)
        exits = []
        for program in list(self.running):
            if capital[program] >= limit:
                self.running.remove(program)
                exits.append(Exit(program, "too slow", self.questions))
        return exits

    def _beaten(self) -> list[Exit]:
        capital = np.logaddexp.reduce(self._better, axis=0) - math.log(len(_STAKES))
        limit = self._threshold(2 if self.rule.worth else 1)
        standing = list(self.running)
        exits = []
        for program in standing:
            rivals = list(standing)
            rivals.remove(program)
            if not rivals:
                break
            winner = max(rivals, key=lambda rival: capital[rival, program])
            if capital[winner, program] >= limit:
                self.running.remove(program)
                exits.append(Exit(program, "beaten", self.questions, winner))
        return exits

    def _not_worth_it(self) -> list[Exit]:
        if not self.rule.worth:
            return []
        capital = np.logaddexp.reduce(self._worthless, axis=0) - math.log(len(_STAKES))
        limit = self._threshold(2)
        cheapest = self.cheapest_first()
        exits = []
        for place, program in reversed(list(enumerate(cheapest))):
            for rival in cheapest[:place]:
                if capital[program, rival] >= limit:
                    self.running.remove(program)
                    exits.append(Exit(program, "not worth it", self.questions, rival))
                    break
        return exits


def _by_cluster(block: Block) -> tuple[Floats, Floats]:
    """Returns the sums of scores over clusters (programs, clusters), and the clusters' sizes."""
    numbers: dict[Hashable, int] = {}
    columns = np.empty(len(block.clusters), dtype=np.int64)
    for at, cluster in enumerate(block.clusters):
        columns[at] = numbers.setdefault(cluster, len(numbers))
    sizes = np.bincount(columns, minlength=len(numbers)).astype(np.float64)
    totals = np.zeros((block.scores.shape[0], len(numbers)))
    np.add.at(totals.T, columns, block.scores.T)
    return totals, sizes


def _winnings(units: Floats) -> Floats:
    """Returns the logarithms (stakes, programs, programs) that bets on positive `units` gain.

    `units` (programs, programs, clusters) are in [-1, 1]; those of a program that is out are NaN
    and gain nothing.
    """
    filled = np.nan_to_num(units)
    return np.stack([np.log1p(stake * filled).sum(axis=-1) for stake in _STAKES])


def _slow_winnings(late: Floats) -> Floats:
    """Returns the logarithms (stakes, programs) that bets on more than `_SLOW_SHARE` late gain."""
    above = late - _SLOW_SHARE
    return np.stack([np.log1p(stake / _SLOW_SHARE * above).sum(axis=-1) for stake in _STAKES])
