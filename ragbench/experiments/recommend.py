"""Which of several programs to use: the cheapest that is not shown worse than the best mean.

The best mean is tested against every cheaper program over the same questions, by the paired test of
`ragbench compare`, with Holm's correction over these tests. Nothing depends on the order of the
runs or of their records.

A router chooses a program by the wording of a question: scikit-learn's regression tree predicts,
from the features of a question, how far each program scores above or below the mean of all of them,
and the program predicted best is taken. What that is worth is measured on held-out questions:
whatever is chosen (depth, splits, programs, best program) is chosen in training folds, and no fold
shares a cluster with another.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragbench import metrics
from ragbench.errors import CompareError, ConfigError, RagbenchError, needs_extra
from ragbench.experiments.artifacts import question_hash
from ragbench.experiments.compare.paired import columns, question, read_for, shared_questions
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import RunCard
from ragbench.programs import PROGRAMS, routing

Floats = NDArray[np.float64]
#: What a question takes, by the metric that measures it; the first that says something is the cost.
SPENDING = ("cost_usd", "tokens", "calls")
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


@dataclass(frozen=True, eq=False)
class Arm:
    """A program over all questions, in the order of `Advice.questions`.

    `spending` is the mean per question by each of `SPENDING`, None where it is not known.
    """

    label: str
    run: Evaluation
    scores: Floats
    mean: float
    interval: metrics.Interval | None
    spending: Mapping[str, float | None]

    def is_cheaper(self, other: "Arm", measure: str) -> bool:
        """Whether it is known to take less by `measure` than `other`."""
        own = self.spending[measure]
        others = other.spending[measure]
        return own is not None and others is not None and own < others


@dataclass(frozen=True)
class Advice:
    """The program to use, and the best mean.

    `cost` is the measure by which programs are cheap or dear; `questions` are texts by id, and
    `clusters` are empty where questions stand alone. `arms` are sorted by mean, the best first, and
    of equal means by cost. `difference` is `best` minus `use`, question by question; None where
    both are one program.
    """

    metric: str
    cost: str
    questions: Mapping[str, str]
    clusters: Mapping[str, str]
    arms: Sequence[Arm]
    use: Arm
    best: Arm
    difference: metrics.Comparison | None

    def sentences(self) -> list[str]:
        """The advice in words, the program to use first."""
        use, best, c = self.use.label, self.best.label, self.difference
        if c is None:
            cheaper = any(arm.is_cheaper(self.best, self.cost) for arm in self.arms)
            unknown = [arm.label for arm in self.arms if arm.spending[self.cost] is None]
            if unknown:
                why = f"what {' and '.join(unknown)} takes is not known, so no price is weighed"
            elif cheaper:
                why = "shown better than every cheaper program"
            else:
                why = "none is cheaper"
            lines = [f"use {use}: the best mean, and {why}"]
        else:
            ends = f" [{c.interval.low:+.3f}, {c.interval.high:+.3f}]" if c.interval else ""
            lines = [
                f"use {use}: the cheapest not shown worse than the best mean "
                f"({best} {c.difference:+.3f}{ends})"
            ]
            if c.n < metrics.LEAST_PILOT:
                lines.append(f"{c.n} questions are too few to say how many would tell them apart")
            elif c.n_needed is not None:
                least = c.n_least or c.n_needed
                lines.append(
                    f"to tell {best} from {use}: about {_two_figures(c.n_needed)} questions, "
                    f"{_two_figures(least)} if the difference is the largest of the interval"
                )
        return lines


def _two_figures(n: int) -> str:
    return f"{float(f'{n:.2g}'):,.0f}"  # it comes from a difference that is itself uncertain


def advise(
    runs: Sequence[Evaluation],
    metric: str = "f1",
    *,
    labels: Sequence[str] = (),
    common: bool = False,
) -> Advice:
    """What `runs` say of which program to use; `labels` are their names, by default the folders'.

    With `common` the questions that all runs have are enough.
    """
    kind = metrics.get_metric(metric)
    if not kind.higher_is_better or kind.score_range is None:
        raise ConfigError(f"{metric} is no measure of accuracy; give --metric f1 or em")
    if len(runs) < 2:
        raise ConfigError("advice chooses between programs: give two runs or more")
    for run in runs:
        read_for(run, [metric, *SPENDING])
    scored = _scores(runs, metric, common=common)
    shared = runs[0].records.only(scored)
    clusters = clusters_of(shared)
    names = [clusters[qid] for qid in scored] if clusters else None
    arms = []
    labels = labels or [run.folder.name for run in runs]
    table = np.array(list(scored.values()), dtype=np.float64)
    for label, run, scores in zip(labels, runs, table.T.copy(), strict=True):
        interval = metrics.mean_interval(scores, kind.score_range, names)
        spent = {name: _spent(run, list(scored), name) for name in SPENDING}
        arms.append(Arm(label, run, scores, float(scores.mean()), interval, spent))
    cost = _measure(arms)
    arms.sort(key=lambda arm: _rank(arm, cost))
    use, difference = _cheapest(arms, list(scored), cost, kind.score_range, clusters)
    texts = shared.column(question)
    questions = {qid: texts[qid] for qid in scored}
    return Advice(metric, cost, questions, clusters, arms, use, arms[0], difference)


def _measure(arms: Sequence[Arm]) -> str:
    """The measure of cost: the first of `SPENDING` that is known of all arms, and not 0 for all.

    Where there is none it is the last one, which may be unknown: then nothing is cheaper.
    """
    for name in SPENDING:
        values = [arm.spending[name] for arm in arms]
        if None not in values and any(values):  # local models cost nothing
            return name
    return SPENDING[-1]


def _rank(arm: Arm, cost: str) -> tuple[float, float, str, str]:
    """The best mean first, of equal means the one that takes least; unknown last."""
    amount = arm.spending[cost]
    if amount is None:
        amount = math.inf
    return -round(arm.mean, 9), amount, arm.label, str(arm.run.folder)


def _scores(runs: Sequence[Evaluation], metric: str, *, common: bool) -> dict[str, list[float]]:
    """The score of each run by question id, sorted, for the questions that all have one of."""
    qids = set(shared_questions(runs[0], runs[1], common=common))
    for run in runs[2:]:
        qids &= set(shared_questions(runs[0], run, common=common))
    first, rest = columns(runs[:1], runs[1:], metric, sorted(qids))
    if not first:
        raise CompareError("the runs share no question that all of them have a score for")
    return {qid: first[qid] + rest[qid] for qid in sorted(first)}


def _cheapest(
    arms: Sequence[Arm],
    qids: Sequence[str],
    cost: str,
    score_range: tuple[float, float],
    clusters: Mapping[str, str],
) -> tuple[Arm, metrics.Comparison | None]:
    """The cheapest arm that the first is not shown better than, and the first minus that one."""
    best, method = arms[0], metrics.Method(clusters=clusters)
    cheaper = [arm for arm in arms if arm.is_cheaper(best, cost)]
    scores = [dict(zip(qids, arm.scores.tolist(), strict=True)) for arm in (best, *cheaper)]
    compared = metrics.correct(
        [
            metrics.compare_scores(s, scores[0], score_range=score_range, method=method)
            for s in scores[1:]
        ]
    )
    pairs = zip(cheaper, compared, strict=True)
    open_ones = [(arm, c) for arm, c in pairs if not c.verdict.startswith("better")]
    if not open_ones:
        return best, None
    return min(open_ones, key=lambda one: (one[0].spending[cost], -one[0].mean, one[0].label))


def _spent(run: Evaluation, qids: Sequence[str], name: str) -> float | None:
    each = run.records.only(qids).column(metrics.get_metric(name).score)
    values = [value for qid in qids if (value := each[qid]) is not None]
    return float(np.mean(values)) if len(values) == len(qids) else None


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
        gain, least = self.gain, LEAST_CLUSTERS
        if gain is None or gain.interval is None:
            short = f"it takes {least} or more that share no gold passage"
            return [f"not enough questions for a router: {short}"]
        worth = f"{gain.difference:+.3f} [{gain.interval.low:+.3f}, {gain.interval.high:+.3f}]"
        held_out = f"{worth} over the best single program, held out"
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
    rows = [routing.question_features(text) for text in advice.questions.values()]
    features = np.array([[row[name] for name in routing.FEATURES] for row in rows])
    _, groups = np.unique([advice.clusters.get(qid, qid) for qid in qids], return_inverse=True)
    alone = _leaf(scores, list(advice.arms).index(advice.use))
    if len(set(groups)) < LEAST_CLUSTERS:
        return RouterAdvice(alone, alone)
    with needs_extra("a router"):
        single, routed = held_out(features, scores, groups)
    sides = (dict(zip(qids, side.tolist(), strict=True)) for side in (single, routed))
    bounds, method = (
        metrics.get_metric(advice.metric).score_range,
        metrics.Method(clusters=advice.clusters),
    )
    gain = metrics.compare_scores(*sides, score_range=bounds, method=method)
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
    single, routed = np.zeros(len(scores)), np.zeros(len(scores))
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


def _choose(features: Floats, scores: Floats, depth: int, of: Floats) -> Choices:
    """The program for each question with the features `of`, learned from `features`, `scores`."""
    if not depth:
        return np.full(len(of), scores.mean(axis=0).argmax())
    chosen: Choices = _fit(features, scores, depth).predict(of).argmax(axis=1)
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
    cards = [arm.run.card for arm in advice.arms]
    _check_runnable(cards)
    programs = [
        routing.Candidate(
            label=arm.label, program=card.program, set=dict(card.identity.get("set") or {})
        )
        for arm, card in zip(advice.arms, cards, strict=True)
    ]  # fmt: skip
    learned_from = routing.LearnedFrom(
        dataset=cards[0].data.name,
        ids=list(advice.questions),
        hashes=[question_hash(question) for question in advice.questions.values()],
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
    for name in sorted({name for card in cards for name in card.identity.keys() - _OWN}):
        if any(card.identity.get(name) != cards[0].identity.get(name) for card in cards):
            raise ConfigError(
                f"the runs differ in {name}, and a router runs its programs with one; "
                "give runs that differ in their programs alone"
            )
