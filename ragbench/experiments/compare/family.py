"""All tests of one metric over several runs, made once and corrected together.

Tables, advice, `compare` and the page speak from one family, so that no word contradicts another.
Every pair of arms is tested, and all K(K-1)/2 tests are one family for Holm's correction (1979),
with or without a baseline. The best is found by the same scores, so a correction over its pairs
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
from ragbench.experiments.runs.summary import EVIDENCE, Evaluation, is_upper_bound, shows_method
from ragbench.metrics import JUDGED, Comparison, Interval, Method, correct, get_metric

#: What a question takes, by the metric that measures it; the first that says something is the cost.
SPENDING = ("cost_usd", "tokens", "calls")
#: A run is no part of a family where it has less than this share of the questions of the largest.
_LEAST_SHARE = 0.5
#: A program is not the best where more of its right answers than this lack their evidence.
_MOST_WITHOUT = 0.5


@dataclass(frozen=True)
class Standing:
    """One arm of a family.

    Attributes:
        runs: The runs of the arm.
        mean: Mean over the questions of the family that the arm has a score of, seeds pooled.
        interval: 95 % interval of the mean, by clusters.
        spending: Mean per question by each of `SPENDING`. None if unknown.
        without_evidence: Number of `right` answers without all of their gold passages.
        right: Number of right answers whose gold passages are known.
        to_best: This arm minus the best. None for the best itself.
    """

    runs: Arm
    mean: float
    interval: Interval | None
    spending: Mapping[str, float | None]
    without_evidence: int
    right: int
    to_best: Comparison | None = None

    @property
    def lacks_evidence(self) -> bool:
        """Whether most of its right answers were given without their evidence."""
        return self.without_evidence > _MOST_WITHOUT * self.right


@dataclass(frozen=True)
class Family:
    """The tests of `metric` over `questions`, the ids that all runs share.

    `standings` are in the order in which the arms were given; `best` and `baseline` are places in
    it. `clusters` are of questions that vary together, empty where each stands alone. `cost` is the
    measure of `SPENDING` by which programs are cheap or dear. `comparisons` are all tests: places
    of A and B, and the test of B minus A.
    """

    metric: str
    questions: tuple[str, ...]
    clusters: Mapping[str, str]
    standings: tuple[Standing, ...]
    best: int
    baseline: int | None
    cost: str
    comparisons: Mapping[tuple[int, int], Comparison]

    @property
    def tests(self) -> int:
        """How many tests the correction is for."""
        return len(self.comparisons)

    def between(self, a: int | None, b: int | None) -> Comparison | None:
        """The test of the arm at `b` minus that at `a`; None where the family has not both."""
        if a is None or b is None:
            return None
        backward = self.comparisons.get((b, a))
        if backward:
            return backward.reversed()
        return self.comparisons.get((a, b))

    def beside(self, extra: Sequence[Comparison]) -> list[Comparison]:
        """`extra`, tests that are asked for beside the family, corrected with all of its own.

        What the family says stays as it is, whatever else is asked.
        """
        return correct([*self.comparisons.values(), *extra])[self.tests :]


def make_family(
    arms: Sequence[Arm], metric: str, *, common: bool = False, margin: float | None = None
) -> Family:
    """The family of `arms`, each the runs of one program (seeds), for `metric`.

    `common` leaves out questions that some run has not. Of arms with equal means the cheapest is
    the best, then the first. One that lacks evidence is the best only where all of them do.

    Raises:
        CompareError: the runs are over other data or questions, share none with a score, or were
            scored by different judges.
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
        lacking = _without_evidence(arm, complete)
        standings.append(Standing(arm, mean, interval, spending, *lacking))
    cost = _measure_of_cost(standings)

    def rank(at: int) -> tuple[float, float, int]:
        mean = round(standings[at].mean, 9)
        price = or_infinite(standings[at].spending[cost])
        return (-mean if kind.higher_is_better else mean, price, at)

    places = range(len(arms))
    best = min([at for at in places if not standings[at].lacks_evidence] or places, key=rank)
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


def comparable(arms: Sequence[Arm], *, unshown: bool = False) -> tuple[list[int], dict[int, str]]:
    """The places of the arms that make a family, by their folders, and why each other one does not.

    One has too few of the questions of the largest, cannot show its method where others do (unless
    `unshown` asks for such arms), or is an upper bound.
    """
    runs = [arm[0] for arm in arms]
    order = sorted(range(len(runs)), key=lambda at: str(runs[at].folder))
    largest = max((runs[at] for at in reversed(order)), key=lambda run: len(run.records))
    bounds = [is_upper_bound(run.summary) for run in runs]
    silent = [not shows_method(run.summary) for run in runs]
    several = sum(not (silent[at] or bounds[at]) for at in order) >= 2
    places = []
    left_out = {}
    for at in order:
        n = sum(qid in largest.records for qid in runs[at].records)
        other_data = runs[at].card.data.digest != largest.card.data.digest
        if bounds[at]:
            left_out[at] = "is an upper bound: it was told the gold passages"
        elif several and silent[at] and not unshown:
            left_out[at] = "reads all passages or has a bare index"
        elif other_data or n >= _LEAST_SHARE * len(largest.records):
            places.append(at)
        else:
            left_out[at] = f"has {n} of {len(largest.records)} questions"
    return places, left_out


def default_baseline(runs: Sequence[Evaluation]) -> int | None:
    """The place of the run that others are set against, or None.

    It is the one run of plain `vanilla`, else the only run of a program as it is: not compiled,
    and without votes.
    """
    plain = []
    vanilla = []
    for at, run in enumerate(runs):
        identity = run.card.identity
        if not identity.get("compiled") and identity.get("votes", 1) == 1:
            plain.append(at)
            if run.card.program == "vanilla":
                vanilla.append(at)
    if len(vanilla) == 1:
        return vanilla[0]
    if len(plain) == 1:
        return plain[0]
    return None


def or_infinite(amount: float | None) -> float:
    """The amount, infinite where it is not known: an unknown price is not a low one."""
    if amount is None:
        return math.inf
    return amount


def _measure_of_cost(standings: Sequence[Standing]) -> str:
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
    """The mean per question by `name`; None where it is not known of all."""
    amounts = shared.scores(runs, name)
    if not shared.qids or np.isnan(amounts).any():
        return None
    return fmean(map(fmean, amounts.T.tolist()))


def _without_evidence(runs: Arm, shared: Shared) -> tuple[int, int]:
    """How many right answers (EM 1) lacked a gold passage, of those whose gold is known."""
    evidence = shared.scores(runs, EVIDENCE)
    right = (shared.scores(runs, "em") == 1) & ~np.isnan(evidence)
    return int((right & (evidence != 1)).sum()), int(right.sum())
