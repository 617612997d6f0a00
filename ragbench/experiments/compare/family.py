"""All tests of one metric over several runs, computed once and corrected together.

Tables, advice, `compare` and the page use the same family, so they never contradict each other.
Every pair of arms is tested. All K(K-1)/2 tests are one family for Holm's correction (1979), with
or without a baseline. The best arm is chosen by the same scores, so a correction over its pairs
only would be too small: of 20 equal programs it called one worse in 20 % of sets. Only contrasts
that a file names in advance (a sweep, a verdict) are a smaller family.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from statistics import fmean

import numpy as np

from ragbench.errors import CompareError
from ragbench.experiments.compare.paired import Arm, Shared
from ragbench.experiments.runs.summary import (
    GOLD_IN_CONTEXT,
    Evaluation,
    is_upper_bound,
    retrieval_is_selective,
)
from ragbench.metrics import JUDGED, Comparison, Interval, Method, correct, get_metric

#: Metrics of spending per question. The first one that is informative is the cost.
SPENDING = ("cost_usd", "tokens", "calls")
#: Minimum share of the questions of the largest run that a run of a family has.
_LEAST_SHARE = 0.5
#: A program is not the best if more of its right answers than this lack gold in context.
_MOST_WITHOUT = 0.5


@dataclass(frozen=True)
class ProgramStatistics:
    """One arm of a family.

    Attributes:
        runs: The runs of the arm.
        mean: Mean over the questions of the family that the arm has a score of, seeds pooled.
        interval: 95 % interval of the mean, by clusters.
        spending: Mean per question by each of `SPENDING`. None if unknown.
        without_gold: Number of `right` answers without all of their gold passages.
        right: Number of right answers whose gold passages are known.
        to_best: This arm minus the best. None for the best itself.
    """

    runs: Arm
    mean: float
    interval: Interval | None
    spending: Mapping[str, float | None]
    without_gold: int
    right: int
    to_best: Comparison | None = None

    @property
    def mostly_without_gold(self) -> bool:
        """True if most right answers were given without all gold passages in context."""
        return self.without_gold > _MOST_WITHOUT * self.right


@dataclass(frozen=True)
class Family:
    """Tests of one metric over the questions that all runs share.

    Attributes:
        metric: Name of the metric.
        questions: Ids of the shared questions.
        clusters: Cluster of each question. Empty if each is its own.
        standings: Arms, in the order of the input.
        best: Place of the best arm in `standings`.
        baseline: Place of the baseline, if there is one.
        cost: Measure of `SPENDING` by which programs are cheap or expensive.
        comparisons: Test of B minus A for each pair of places (A, B).
    """

    metric: str
    questions: tuple[str, ...]
    clusters: Mapping[str, str]
    standings: tuple[ProgramStatistics, ...]
    best: int
    baseline: int | None
    cost: str
    comparisons: Mapping[tuple[int, int], Comparison]

    @property
    def tests(self) -> int:
        """Number of tests that the correction covers."""
        return len(self.comparisons)

    def between(self, a: int | None, b: int | None) -> Comparison | None:
        """Return the test of arm `b` minus arm `a`. Return None if the family lacks one of them.

        Args:
            a: Position of the first arm, or None.
            b: Position of the second arm, or None.
        """
        if a is None or b is None:
            return None
        backward = self.comparisons.get((b, a))
        if backward:
            return backward.reversed()
        return self.comparisons.get((a, b))

    def beside(self, extra: Sequence[Comparison]) -> list[Comparison]:
        """Correct the extra tests together with those of the family.

        The results of the family do not change.
        """
        return correct([*self.comparisons.values(), *extra])[self.tests :]


def make_family(
    arms: Sequence[Arm], metric: str, *, common: bool = False, margin: float | None = None
) -> Family:
    """Test all pairs of arms by one metric.

    If means tie, the cheapest arm is the best, then the first. An arm that misses gold is the
    best only if all arms do.

    Args:
        arms: Arms. Each has the runs of one program (seeds).
        metric: Name of the metric.
        common: True uses only the questions that all runs have.
        margin: Difference that is too small to matter, in metric units.

    Raises:
        CompareError: The runs have different data or questions, share no scored question, or have
            different judges.
    """
    kind = get_metric(metric)
    runs = list(chain.from_iterable(arms))
    shared = Shared.by(runs, common=common)
    complete = Shared(shared.complete(runs, metric)[0], runs[0])
    standings = []
    for arm in arms:
        mean, interval = shared.mean(arm, metric)
        if mean is None:
            cure = "; `ragbench score` asks a judge" if metric in JUDGED else ""
            raise CompareError(
                f"{arm[0].folder} has no score of {metric} for a shared question{cure}"
            )
        spending = {name: _spent(arm, complete, name) for name in SPENDING}
        lacking = _without_gold(arm, complete)
        standings.append(ProgramStatistics(arm, mean, interval, spending, *lacking))
    cost = _measure_of_cost(standings)

    def rank(at: int) -> tuple[float, float, int]:
        mean = round(standings[at].mean, 9)
        price = or_infinite(standings[at].spending[cost])
        return (-mean if kind.higher_is_better else mean, price, at)

    places = range(len(arms))
    best = min([at for at in places if not standings[at].mostly_without_gold] or places, key=rank)
    firsts = [arm[0] for arm in arms]
    baseline = default_baseline(firsts)
    pairs = list(combinations(places, 2))
    method = Method(margin=margin)
    tests = [shared.compare(arms[a], arms[b], metric, method) for a, b in pairs]
    of_pair = dict(zip(pairs, correct(tests), strict=True))
    qids = tuple(shared.qids)
    family = Family(metric, qids, shared.clusters, (), best, baseline, cost, of_pair)
    for at in places:
        standings[at] = replace(standings[at], to_best=family.between(best, at))
    return replace(family, standings=tuple(standings))


def comparable(
    arms: Sequence[Arm], *, degenerate: bool = False
) -> tuple[list[int], dict[int, str]]:
    """Return the places of the arms that form a family, and the reason against each other arm.

    An arm is excluded if it has too few of the questions of the largest run, if it is an upper
    bound, or if it cannot show its method and others can.

    Args:
        arms: Arms.
        degenerate: True includes arms that cannot show their method.
    """
    runs = [arm[0] for arm in arms]
    order = sorted(range(len(runs)), key=lambda at: str(runs[at].folder))
    largest = max((runs[at] for at in reversed(order)), key=lambda run: len(run.records))
    bounds = [is_upper_bound(run.summary) for run in runs]
    silent = [not retrieval_is_selective(run.summary) for run in runs]
    several = sum(not (silent[at] or bounds[at]) for at in order) >= 2
    places = []
    left_out = {}
    for at in order:
        n = sum(qid in largest.records for qid in runs[at].records)
        other_data = runs[at].card.data.digest != largest.card.data.digest
        if bounds[at]:
            left_out[at] = "is an upper bound: it was told the gold passages"
        elif several and silent[at] and not degenerate:
            left_out[at] = "reads all passages or has a bare index"
        elif other_data or n >= _LEAST_SHARE * len(largest.records):
            places.append(at)
        else:
            left_out[at] = f"has {n} of {len(largest.records)} questions"
    return places, left_out


def default_baseline(runs: Sequence[Evaluation]) -> int | None:
    """Return the place of the default baseline, or None.

    It is the only uncompiled `vanilla` run without votes, or else the only uncompiled run without
    votes.
    """
    plain = []
    for at, run in enumerate(runs):
        identity = run.card.identity
        if not identity.get("compiled") and identity.get("votes", 1) == 1:
            plain.append(at)
    vanilla = [at for at in plain if runs[at].card.program == "vanilla"]
    for places in (vanilla, plain):
        if len(places) == 1:
            return places[0]
    return None


def or_infinite(amount: float | None) -> float:
    """Return the amount, or infinity if it is unknown: an unknown price is not low."""
    if amount is None:
        return math.inf
    return amount


def _measure_of_cost(standings: Sequence[ProgramStatistics]) -> str:
    """Return the measure by which programs are cheap or expensive.

    It is dollars as soon as a price is known, because tables show dollars then. A program without
    a price is neither cheaper nor more expensive. Without prices, or with prices of 0 only as of
    local models, it is tokens, else calls.
    """
    for name in SPENDING:
        amounts = [standing.spending[name] for standing in standings]
        unknown = amounts.count(None)
        if any(amounts) or 0 < unknown < len(amounts):
            return name
    return SPENDING[-1]


def _spent(runs: Arm, shared: Shared, name: str) -> float | None:
    """Return the mean of `name` per question, or None if it is unknown for a question."""
    amounts = shared.scores(runs, name)
    if not shared.qids or np.isnan(amounts).any():
        return None
    return fmean(map(fmean, amounts.T.tolist()))


def _without_gold(runs: Arm, shared: Shared) -> tuple[int, int]:
    """Count right answers (EM 1) without all gold passages, and all with known gold."""
    gold_in_context = shared.scores(runs, GOLD_IN_CONTEXT)
    right = (shared.scores(runs, "em") == 1) & ~np.isnan(gold_in_context)
    return int((right & (gold_in_context != 1)).sum()), int(right.sum())
