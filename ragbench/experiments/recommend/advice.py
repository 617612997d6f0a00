"""Which program for which questions: the rule, what it is worth held out, and its regret."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragbench.experiments.recommend.answers import Asked
from ragbench.experiments.recommend.rules import (
    HeldOut,
    Table,
    best_single,
    hold_out,
    learn,
    learn_depth,
    oracle,
)
from ragbench.experiments.recommend.trees import Branch, Floats, Splits, Tree
from ragbench.metrics import get_metric
from ragbench.metrics.stats import Interval, MeanEstimate, estimate_mean, questions_needed
from ragbench.programs.routing import Leaf, Node, Split

#: Clusters of questions below which no rule is learned: training folds fill no two leaves.
LEAST = 50


@dataclass(frozen=True)
class Arm:
    """A way to answer all questions: its mean score, its interval and its mean spending.

    Spending is by measure, None where it is not known.
    """

    name: str
    mean: float
    interval: Interval | None
    spending: Mapping[str, float | None]


@dataclass(frozen=True)
class Difference:
    """A mean difference over questions with its 95 % interval; None where there is none."""

    mean: float
    interval: Interval | None


@dataclass(frozen=True)
class Advice:
    """The recommendation that follows from several runs.

    `programs` are of all questions; `single`, `rule` and `oracle` of held-out ones (the oracle
    needs no holding out: it knows the scores). They, `gain` (rule minus best single program),
    `headroom` (oracle minus best single program) and `regret` (oracle minus rule) are None where
    there are fewer than `LEAST` clusters. `rule_learned` is the rule learned from all questions,
    `rule_used` what is recommended: that rule where its gain is shown, else the best program.
    `chosen` is how often each program was the best single one in the training folds. `needed` is
    how many questions would show the gain seen; `detectable` is the gain that the questions at hand
    show with 80 % power, of a rule that gives half of them to the second best program.
    """

    asked: Asked
    clusters: int
    programs: Sequence[Arm]
    best: int
    rule_learned: Node
    rule_used: Node
    seed: int
    single: Arm | None = None
    rule: Arm | None = None
    oracle: Arm | None = None
    gain: Difference | None = None
    headroom: Difference | None = None
    regret: Difference | None = None
    chosen: Sequence[int] = ()
    needed: int | None = None
    detectable: float | None = None

    @property
    def shown(self) -> bool:
        """Whether the rule's gain over the best single program is shown."""
        gain = self.gain
        return bool(gain and gain.interval and gain.interval.low > 0)


def recommend(asked: Asked, *, seed: int = 0) -> Advice:
    """Learn a rule from all questions of `asked`, and test what it is worth on held-out ones."""
    table = asked.table
    clusters = len(set(table.clusters))
    best = best_single(table)
    programs = [
        _arm(asked, label, _use(table, np.full(len(table.scores), number)))
        for number, label in enumerate(asked.labels)
    ]
    alone = _leaf(table, best, np.arange(len(table.scores)))
    if clusters < LEAST:
        return Advice(asked, clusters, programs, best, alone, alone, seed)
    held = hold_out(table, seed)
    depth = learn_depth(table, np.random.default_rng(seed + 1))
    learned = _node(learn(table)[depth], table, asked.splits, np.arange(len(table.scores)))
    best_of_each = _use(table, oracle(table))
    gain, needed = _gain(asked, held)
    shown = bool(gain.interval and gain.interval.low > 0)
    return Advice(
        asked=asked,
        clusters=clusters,
        programs=programs,
        best=best,
        rule_learned=learned,
        rule_used=learned if shown else alone,
        seed=seed,
        single=_arm(asked, "best single program", held.single),
        rule=_arm(asked, "router", held.rule),
        oracle=_arm(asked, "oracle", best_of_each),
        gain=gain,
        headroom=_difference(asked, best_of_each, held.single)[0],
        regret=_difference(asked, best_of_each, held.rule)[0],
        chosen=held.chosen.tolist(),
        needed=needed,
        detectable=_detectable(table, best),
    )


def _use(table: Table, programs: NDArray[np.int64]) -> Floats:
    """Each question given to its program of `programs`, `(questions, programs)`."""
    use: Floats = np.eye(table.scores.shape[1])[programs]
    return use


def _arm(asked: Asked, name: str, use: Floats) -> Arm:
    """The scores and spending where questions go to programs by `use` `(questions, programs)`."""
    scores = (use * asked.table.scores).sum(axis=1)
    spending = {
        measure: None if spent is None else float((use * spent).sum(axis=1).mean())
        for measure, spent in asked.spending.items()
    }
    estimate = estimate_mean(scores, _range(asked), asked.table.clusters)
    return Arm(name, float(scores.mean()), estimate.interval() if estimate else None, spending)


def _gain(asked: Asked, held: HeldOut) -> tuple[Difference, int | None]:
    """The rule against the best single program, and the questions that would show it."""
    gain, estimate = _difference(asked, held.rule, held.single)
    each = ((held.rule - held.single) * asked.table.scores).sum(axis=1)
    spread = float(each.std(ddof=1)) * math.sqrt(estimate.design_effect) if estimate else 0.0
    if gain.mean <= 0 or not spread:
        return gain, None
    return gain, questions_needed(gain.mean, spread)


def _difference(asked: Asked, use: Floats, than: Floats) -> tuple[Difference, MeanEstimate | None]:
    each = ((use - than) * asked.table.scores).sum(axis=1)
    low, high = _range(asked)
    estimate = estimate_mean(each, (low - high, high - low), asked.table.clusters)
    if estimate is None:
        return Difference(float(each.mean()), None), None
    return Difference(float(each.mean()), estimate.interval()), estimate


def _detectable(table: Table, best: int) -> float | None:
    """The gain that is shown with 80 % power, of a rule that moves half of the questions.

    The spread of a rule that hardly ever moves one says nothing of the power to show another.
    """
    means = table.scores.mean(axis=0)
    others = [number for number in range(len(means)) if number != best]
    second = max(others, key=lambda number: float(means[number]))
    moved = table.scores[:, second] - table.scores[:, best]
    half = np.where(np.arange(len(moved)) % 2 == 0, moved - moved.mean(), 0.0)
    estimate = estimate_mean(half, None, table.clusters)
    return None if estimate is None else estimate.detectable()


def _range(asked: Asked) -> tuple[float, float]:
    score_range = get_metric(asked.objective).score_range
    assert score_range is not None  # `gather` takes no other metric
    return score_range


def _node(tree: Tree, table: Table, splits: Splits, at: NDArray[np.int64]) -> Node:
    """`tree` as a policy has it, with what it was learned from; `at` are its questions."""
    if not isinstance(tree, Branch):
        return _leaf(table, tree.program, at)
    holds = splits.holds[at, tree.split]
    yes = _node(tree.yes, table, splits, at[holds])
    no = _node(tree.no, table, splits, at[~holds])
    if isinstance(yes, Leaf) and isinstance(no, Leaf) and yes.program == no.program:
        return _leaf(table, yes.program, at)
    return Split(
        feature=splits.features[tree.split], at_least=splits.bounds[tree.split], yes=yes, no=no
    )


def _leaf(table: Table, program: int, at: NDArray[np.int64]) -> Leaf:
    means = table.scores[at].mean(axis=0)
    return Leaf(program=program, n=len(at), means=[round(float(mean), 6) for mean in means])
