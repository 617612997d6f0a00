"""A router over the programs of an advice: the rule, what it is worth, and its policy.

A router chooses a program by the wording of a question: scikit-learn's regression tree predicts,
from the features of a question, how far each program scores above or below the mean of all of them,
and the program predicted best is taken. What that is worth is measured on held-out questions:
whatever is chosen (depth, splits, programs, best program) is chosen in training folds, and no fold
shares a cluster with another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragbench import metrics
from ragbench.errors import ConfigError, RagbenchError, needs_extra
from ragbench.experiments.artifacts import question_hash
from ragbench.experiments.compare.paired import groups_of
from ragbench.experiments.recommend import Advice
from ragbench.experiments.store import RunCard
from ragbench.programs import PROGRAMS, routing

Floats = NDArray[np.float64]
Choices = NDArray[np.int64]
#: Clusters of questions below which no router is learned: training folds fill no two leaves.
LEAST_CLUSTERS = 50
#: Folds in which what was learned is tested, how often they are drawn anew, and the folds within
#: the training questions by which the depth of the tree is chosen.
_FOLDS, _REPEATS, _INNER_FOLDS = 5, 5, 4
_DEEPEST = 2
#: Questions that a leaf has at the least, and the share of them.
_LEAST_IN_LEAF, _LEAST_SHARE = 8, 0.05
#: A gain counts as shown below this p-value: folds share their training questions, so at 5 % a gain
#: was claimed in 7.5 % of simulated sets without one, at 1 % in 3 % (`benchmarks/advice.py`).
_ALPHA = 0.01
#: What of an identity may differ between the programs that one router runs.
_OWN = frozenset({"program", "set", "program_source", "k"})


@dataclass(frozen=True)
class RouterAdvice:
    """What a router would be worth.

    `learned` is the rule from all questions, `used` what is recommended: that rule where its gain
    is shown, else the advised program for all. `gain` is the router minus the best single program,
    both held out, and `oracle` the mean of the best program of each question; both are None where
    there are fewer than `LEAST_CLUSTERS` clusters.
    """

    learned: routing.Node
    used: routing.Node
    gain: metrics.Comparison | None = None
    oracle: float | None = None

    def sentences(self) -> list[str]:
        gain = self.gain
        least = LEAST_CLUSTERS
        if gain is None or gain.interval is None:
            short = f"it takes {least} or more that share no gold passage"
            return [f"not enough questions for a router: {short}"]
        held_out = f"{gain.gain} over the best single program, held out"
        if shows_gain(gain):
            return [f"use the router: it gains {held_out}"]
        if gain.interval.high < 0:
            return [f"no router: it loses {held_out}"]
        lines = [f"no router: no gain is shown, {held_out}"]
        if gain.minimum_detectable is not None:
            lines.append(f"{gain.n} questions show a gain of {gain.minimum_detectable:.3f} or more")
        return lines


def learn_router(advice: Advice) -> RouterAdvice:
    """The router over the programs of `advice`, and its worth on held-out questions."""
    qids = list(advice.questions)
    scores = np.column_stack([arm.scores for arm in advice.arms])
    rows = list(map(routing.question_features, advice.questions.values()))
    features = np.array(list(map(itemgetter(*routing.FEATURES), rows)))
    _, groups = np.unique([advice.clusters.get(qid, qid) for qid in qids], return_inverse=True)
    # The program for all questions: the advised one, else the best mean.
    alone = _leaf(scores, list(advice.arms).index(advice.use or advice.best))
    if len(set(groups)) < LEAST_CLUSTERS:
        return RouterAdvice(alone, alone)
    with needs_extra("a router"):
        single, routed = held_out(features, scores, groups)
    bounds = metrics.get_metric(advice.metric).score_range
    clusters = groups_of(advice.clusters, qids)
    gain = metrics.compare_scores(single, routed, clusters, score_range=bounds)
    depth = _depth(features, scores, groups, 0)
    learned = _node(_fit(features, scores, depth), features, scores) if depth else alone
    oracle = float(scores.max(axis=1).mean())
    return RouterAdvice(learned, learned if shows_gain(gain) else alone, gain, oracle)


def shows_gain(gain: metrics.Comparison | None) -> bool:
    """Whether a router's held-out gain is large enough to recommend it."""
    return gain is not None and gain.difference > 0 and gain.p <= _ALPHA


def held_out(features: Floats, scores: Floats, groups: Choices) -> tuple[Floats, Floats]:
    """Scores by the best single program and by the router, each learned without the question.

    Means over repeats, a value a question.
    """
    single = np.zeros(len(scores))
    routed = np.zeros(len(scores))
    for repeat in range(_REPEATS):
        for inside, outside in _folds(groups, _FOLDS, repeat):
            depth = _depth(features[inside], scores[inside], groups[inside], repeat)
            for side, levels in ((single, 0), (routed, depth)):
                chosen = _choose(features[inside], scores[inside], levels, features[outside])
                side[outside] += scores[outside, chosen] / _REPEATS
    return single, routed


def _depth(features: Floats, scores: Floats, groups: Choices, seed: int) -> int:
    """The depth of the tree: deeper where that is ahead by more than one standard error."""
    held = np.zeros((_DEEPEST + 1, len(scores)))
    for inside, outside in _folds(groups, _INNER_FOLDS, seed):
        for depth in range(_DEEPEST + 1):
            chosen = _choose(features[inside], scores[inside], depth, features[outside])
            held[depth, outside] = scores[outside, chosen]
    best = 0
    for depth in range(1, _DEEPEST + 1):
        ahead = np.bincount(groups, weights=held[depth] - held[best])  # clusters are the unit
        ahead = ahead[np.unique(groups)]
        if ahead.mean() > ahead.std(ddof=1) / np.sqrt(len(ahead)):
            best = depth
    return best


def _folds(groups: Choices, n: int, seed: int) -> Iterator[tuple[Choices, Choices]]:
    """Training and held-out questions of each fold; no cluster is in both."""
    from sklearn.model_selection import GroupKFold

    yield from GroupKFold(n, shuffle=True, random_state=seed).split(groups, groups=groups)


def _choose(features: Floats, scores: Floats, depth: int, new_features: Floats) -> Choices:
    """The program for each question with `new_features`, learned from `features`, `scores`."""
    if not depth:
        return np.full(len(new_features), scores.mean(axis=0).argmax())
    chosen: Choices = _fit(features, scores, depth).predict(new_features).argmax(axis=1)
    return chosen


def _fit(features: Floats, scores: Floats, depth: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    least = max(_LEAST_IN_LEAF, round(_LEAST_SHARE * len(scores)))
    tree = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=least, random_state=0)
    # Only which program is better matters, not how hard the question is.
    return tree.fit(features, scores - scores.mean(axis=1, keepdims=True))


def _node(tree: Any, features: Floats, scores: Floats, at: int = 0) -> routing.Node:
    """scikit-learn's `tree` from its node `at` on, as a rule over these questions."""
    inner = tree.tree_
    if inner.children_left[at] < 0:
        return _leaf(scores, int(scores.mean(axis=0).argmax()))
    bound = float(inner.threshold[at])
    holds = features[:, inner.feature[at]] > bound
    no = _node(tree, features[~holds], scores[~holds], inner.children_left[at])
    yes = _node(tree, features[holds], scores[holds], inner.children_right[at])
    if isinstance(yes, routing.Leaf) and isinstance(no, routing.Leaf) and yes.program == no.program:
        return _leaf(scores, yes.program)
    return routing.Split(
        feature=list(routing.FEATURES)[inner.feature[at]], at_least=bound, yes=yes, no=no
    )


def _leaf(scores: Floats, program: int) -> routing.Leaf:
    means = [round(float(mean), 6) for mean in scores.mean(axis=0)]
    return routing.Leaf(program=program, n=len(scores), means=means)


def make_policy(advice: Advice, router: RouterAdvice) -> routing.Policy:
    """The policy that runs the router."""
    cards = [arm.runs[0].card for arm in advice.arms]
    _check_runnable(cards)
    programs = []
    for arm, card in zip(advice.arms, cards, strict=True):
        knobs = dict(card.identity.get("set") or {})
        programs.append(routing.Candidate(label=arm.label, program=card.program, set=knobs))
    learned_from = routing.LearnedFrom(
        dataset=cards[0].data.name,
        ids=list(advice.questions),
        hashes=list(map(question_hash, advice.questions.values())),
    )
    return routing.Policy(
        format=routing.FORMAT,
        metric=advice.metric,
        programs=programs,
        rule=router.used,
        learned_from=learned_from,
    )


def _check_runnable(cards: Sequence[RunCard]) -> None:
    for card in cards:
        try:
            PROGRAMS.get(card.program)
        except RagbenchError as error:
            raise ConfigError(f"{card.system} is no program that a router can run here") from error
        for name in ("compiled", "form", "votes"):
            if card.identity.get(name):
                raise ConfigError(
                    f"{card.program} has {name}={card.identity[name]!r}; a router runs programs as "
                    "they are, so leave that run out"
                )
    differing: set[str] = set()
    for card in cards:
        for name in (card.identity.keys() | cards[0].identity.keys()) - _OWN:
            if card.identity.get(name) != cards[0].identity.get(name):
                differing.add(name)
    if differing:
        raise ConfigError(
            f"the runs differ in {min(differing)}, and a router runs its programs with one; "
            "give runs that differ in their programs alone"
        )
