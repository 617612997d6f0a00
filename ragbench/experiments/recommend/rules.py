"""Learns a rule from scores and spending, and how deep it may be; the held-out worth of doing so.

Whatever is chosen is chosen in training folds alone: the best single program, the depth of the
rule, its splits and its programs. A score of a question is by what was learned without it, and
without the questions that share a gold passage with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragbench.experiments.recommend.trees import (
    DEEPEST,
    Bools,
    Choice,
    Floats,
    Tree,
    assign,
    best_trees,
)
from ragbench.metrics.stats import estimate_mean

#: Folds in which what was learned is tested, how often they are drawn anew, and the folds within
#: the training questions by which the depth of the rule is chosen.
FOLDS, REPEATS, INNER_FOLDS = 5, 5, 4
#: Questions that a leaf has at the least, and the share of them.
LEAST_IN_LEAF, LEAST_SHARE = 8, 0.05
#: How much a unit of spending may weigh against the score, where spending is limited.
_WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Table:
    """The data that a rule is learned from, a row per question.

    `scores` `(questions, programs)`; `spent` `(questions, programs, limits)` as shares of the
    limits, whose mean over questions is to be 1 at the most; `holds` `(questions, splits)`;
    `clusters` names the cluster of each question.
    """

    scores: Floats
    spent: Floats
    holds: Bools
    clusters: Sequence[Hashable]

    def part(self, at: NDArray[np.int64]) -> Table:
        """The questions at `at`."""
        names = [self.clusters[i] for i in at]
        return Table(self.scores[at], self.spent[at], self.holds[at], names)

    def of(self, programs: NDArray[np.int64]) -> Floats:
        """The score of each question by its program of `programs`."""
        chosen: Floats = self.scores[np.arange(len(programs)), programs]
        return chosen

    def excess(self, programs: NDArray[np.int64]) -> float:
        """The largest mean share of a limit that is spent; 0 without limits."""
        shares = self.spent[np.arange(len(programs)), programs]
        return float(shares.mean(axis=0).max()) if shares.size else 0.0


@dataclass(frozen=True)
class HeldOut:
    """How often rules learned without a question gave it to each program.

    `single` (the best single program) and `rule` are shares of the repeats, `(questions,
    programs)`. `chosen` is how often each program was the best single one, over all folds.
    """

    single: Floats
    rule: Floats
    chosen: NDArray[np.int64]


def best_single(table: Table) -> int:
    """The program of the best mean score among those within the limits; the first of equals.

    Where none is within them, the one that passes them least.
    """
    means = table.scores.mean(axis=0)
    if not table.spent.shape[2]:
        return int(means.argmax())
    excess = table.spent.mean(axis=0).max(axis=1)
    if (excess > 1).all():
        return int(excess.argmin())
    return int(np.where(excess <= 1, means, -np.inf).argmax())


def learn(table: Table) -> list[Tree]:
    """The rule of each depth from 0, the best single program, to `DEEPEST`.

    Under limits, the best one within them over several weights of spending against the score.
    """
    least = max(LEAST_IN_LEAF, round(LEAST_SHARE * len(table.scores)))
    trees: list[Tree] = [Choice(best_single(table))] * (DEEPEST + 1)
    values = [float(table.of(assign(trees[0], table.holds)).mean())] * (DEEPEST + 1)
    total = table.spent.sum(axis=2)
    for weight in _WEIGHTS if table.spent.shape[2] else _WEIGHTS[:1]:
        for depth, tree in enumerate(best_trees(table.scores - weight * total, table.holds, least)):
            programs = assign(tree, table.holds)
            value = float(table.of(programs).mean())
            if depth and table.excess(programs) <= 1 and value > values[depth] + 1e-9:
                trees[depth], values[depth] = tree, value
    return trees


def learn_depth(table: Table, rng: np.random.Generator) -> int:
    """The depth of the rule: a deeper one where it is ahead by more than its standard error.

    By cross-validation within `table`.
    """
    held = np.zeros((DEEPEST + 1, len(table.scores)))
    for inside, outside in folds(table.clusters, INNER_FOLDS, rng):
        left = table.part(outside)
        for depth, tree in enumerate(learn(table.part(inside))):
            held[depth, outside] = left.of(assign(tree, left.holds))
    best = 0
    for depth in range(1, DEEPEST + 1):
        ahead = held[depth] - held[best]
        estimate = estimate_mean(ahead, None, table.clusters)
        if estimate and float(ahead.mean()) > estimate.standard_error:
            best = depth
    return best


def hold_out(table: Table, seed: int) -> HeldOut:
    """What the best single program and the rule choose for questions they were not learned from."""
    rng = np.random.default_rng(seed)
    single, rule = np.zeros_like(table.scores), np.zeros_like(table.scores)
    chosen = np.zeros(table.scores.shape[1], dtype=np.int64)
    for _ in range(REPEATS):
        for inside, outside in folds(table.clusters, FOLDS, rng):
            training, holds = table.part(inside), table.holds[outside]
            trees, depth = learn(training), learn_depth(training, rng)
            one = best_single(training)
            chosen[one] += 1
            single[outside, one] += 1 / REPEATS
            rule[outside, assign(trees[depth], holds)] += 1 / REPEATS
    return HeldOut(single, rule, chosen)


def oracle(table: Table) -> NDArray[np.int64]:
    """The best program of each question, chosen by its score; the cheapest of equals.

    Under limits, by the least weight of spending against the score that keeps within them.
    """
    total = table.spent.sum(axis=2)
    best = (table.scores - 1e-9 * total).argmax(axis=1)
    for weight in np.geomspace(1e-3, 1e3, 121) if table.spent.shape[2] else ():
        if table.excess(best) <= 1:
            break
        best = (table.scores - weight * total).argmax(axis=1)
    best_of_each: NDArray[np.int64] = best.astype(np.int64)
    return best_of_each


def folds(
    clusters: Sequence[Hashable], n: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Training and held-out questions of each of `n` folds; no cluster is in both.

    Clusters are drawn in a random order, each into the smallest fold so far.
    """
    names: dict[Hashable, list[int]] = {}
    for i, name in enumerate(clusters):
        names.setdefault(name, []).append(i)
    groups = list(names.values())
    filled: list[list[int]] = [[] for _ in range(n)]
    for at in rng.permutation(len(groups)):
        min(filled, key=len).extend(groups[at])
    everything = np.arange(len(clusters))
    for fold in filled:
        if fold and len(fold) < len(clusters):
            outside = np.array(sorted(fold))
            yield np.setdiff1d(everything, outside), outside
