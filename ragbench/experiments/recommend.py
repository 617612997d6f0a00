"""Advice on which of several programs to use: the cheapest one that no other outperforms enough.

A program is recommended only if the gain of every other one over it is significantly below
`min_gain`, and every cheaper one is significantly worse. Otherwise the advice is undecided,
with the required number of questions. Programs whose right answers lack gold in context are
excluded. All tests are those of one family (`compare.family`). The order of the runs and of their
records has no effect.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ragbench import metrics
from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.family import (
    SPENDING,
    Family,
    ProgramStatistics,
    comparable,
    make_family,
    or_infinite,
)
from ragbench.experiments.compare.paired import Shared, read_for
from ragbench.experiments.runs.summary import Evaluation

#: Smallest gain in the mean that justifies a more expensive program.
MIN_GAIN = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class RankedProgram(ProgramStatistics):
    """A program in an advice: its standing, its name, and what the advice says of it."""

    label: str
    why: str = ""

    def cost(self, measure: str) -> float:
        """Return the mean per question by `measure`; infinite if unknown."""
        return or_infinite(self.spending[measure])

    def is_cheaper(self, rival: "RankedProgram", measure: str) -> bool:
        """Return True if this program is known to cost less than `rival`.

        Args:
            rival: The other program.
            measure: Name of the cost.
        """
        return self.cost(measure) < rival.cost(measure) < math.inf


@dataclass(frozen=True)
class Choice:
    """What the tests of a family say, by places of its arms.

    Attributes:
        use: The program to use. None if the questions do not tell.
        rival: The program that prevents an advice. None if there is an advice.
        against: The program that the rival cannot be told from.
    """

    use: int | None
    rival: int | None = None
    against: int | None = None


@dataclass(frozen=True)
class Advice:
    """The program to use, if the questions tell.

    Attributes:
        metric: Name of the metric.
        min_gain: Smallest gain that justifies a more expensive program.
        cost: Measure by which programs are cheap or expensive.
        questions: Ids of the questions that all programs have a score of.
        clusters: Cluster of each question; empty if each is its own.
        arms: Programs by mean, the best first; of equal means the cheaper one.
        use: The program to use. None if undecided.
        best: The best mean of the programs whose right answers mostly have gold in context.
        rival: The program that prevents an advice. None if there is an advice.
        against: The program that the rival cannot be told from.
        family: Every test.
        left_out: A line for each run that shares too few questions.
    """

    metric: str
    min_gain: float
    cost: str
    questions: Sequence[str]
    clusters: Mapping[str, str]
    arms: Sequence[RankedProgram]
    use: RankedProgram | None
    best: RankedProgram
    rival: RankedProgram | None
    against: RankedProgram | None
    family: Family
    test: metrics.Comparison | None = None
    left_out: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """Return the advice in words, the program to use first."""
        lines = ["; ".join([self.headline(), *self._without_gold()])]
        if self.test is not None:
            lines.append(self._needed(self.test))
        return [*lines, *self.left_out]

    def headline(self) -> str:
        """Return the program to use, or why there is none, in one sentence."""
        best = self.best
        use = self.use
        if best.mostly_without_gold:
            return "no program is advised: most right answers of each lack gold passages in context"
        if use is None:
            if self.rival is None or self.against is None or self.test is None:
                return f"undecided: {len(self.questions)} questions are too few to advise by"
            if self._rival_is_cheaper():
                return (
                    f"undecided: {self.rival.label} is cheaper than {self.against.label}, and is "
                    f"neither significantly worse nor significantly within {self.min_gain:g} of it "
                    f"({self.test.gain})"
                )
            return (
                f"undecided: the gain of {self.rival.label} over {self.against.label}, the best "
                f"mean, is not significantly below {self.min_gain:g} ({self.test.gain})"
            )
        words = f"no other program gains {self.min_gain:g} or more over it"
        unknown = []
        for arm in self.arms:
            if arm.spending[self.cost] is None:
                unknown.append(arm.label)
        if unknown:
            words += f"; the cost of {' and '.join(unknown)} is unknown, so no price is weighed"
        if use is best:
            return f"use {use.label}: the best mean, and {words}"
        return f"use {use.label}: the cheapest, and {words} (best mean: {best.label})"

    def _without_gold(self) -> list[str]:
        if self.best.mostly_without_gold:
            return []
        lines = []
        for arm in self.arms:
            if arm.mostly_without_gold:
                lines.append(f"{arm.label} ({arm.mean:.3f}) is left out: {_lacking(arm)}")
        return lines

    def _rival_is_cheaper(self) -> bool:
        if self.rival is None or self.against is None:
            return False
        return self.rival.is_cheaper(self.against, self.cost)

    def _needed(self, c: metrics.Comparison) -> str:
        if self.rival is None or self.against is None:
            return ""
        if c.n < metrics.LEAST_PILOT:
            return f"{c.n} questions are too few to say how many would tell"
        pair = f"{self.against.label} from {self.rival.label}"
        cheaper = self._rival_is_cheaper()
        needed = required_sample_size(c, self.min_gain, self.family.tests, cheaper=cheaper)
        if needed is None:
            return f"no number of questions would tell {pair}"
        return f"to tell {pair}: about {float(f'{needed:.2g}'):,.0f} questions would tell"


def required_sample_size(
    c: metrics.Comparison, min_gain: float, tests: int, *, cheaper: bool
) -> int | None:
    """Return the fewest questions that would end in an advice, if the difference is as seen.

    Args:
        c: The rival minus the program that it cannot be told from.
        min_gain: Smallest gain that justifies a more expensive program.
        tests: Number of tests of the family.
        cheaper: True if the rival is cheaper: it is advised if it is less than `min_gain` worse.

    Returns:
        Number of questions. None if no number would.
    """
    test = c.planned(tests)
    if test is None:
        return None
    gain = c.difference if c.higher_is_better else -c.difference
    distances = [min_gain - gain]
    if cheaper:
        distances = [max(-gain, 0.0), min_gain + gain]
    options = []
    for distance in distances:
        needed = None
        if distance > 1e-9:
            needed = test.questions(distance, c.sd**2)
        if needed is not None:
            options.append(max(needed, c.n + 1))
    return min(options, default=None)


def advise(
    runs: Sequence[Evaluation | Sequence[Evaluation]],
    metric: str = "f1",
    *,
    labels: Sequence[str] = (),
    common: bool = False,
    min_gain: float = MIN_GAIN,
    degenerate: bool = False,
) -> Advice:
    """Advise which program to use.

    Args:
        runs: The runs of each program. Runs that are given together are seeds, and are pooled.
        metric: Metric of accuracy.
        labels: Names of the programs. Default: the names of their folders.
        common: Use only the questions that all runs have. A run that shares less than half of the
            questions of the largest is left out in any case.
        min_gain: Smallest gain that justifies a more expensive program.
        degenerate: Weigh also runs that cannot show their method.

    Raises:
        ConfigError: there are fewer than two runs, or `metric` is no measure of accuracy.
        CompareError: the runs are over other data, or share no question.
    """
    kind = metrics.get_metric(metric)
    if not kind.higher_is_better or kind.score_range is None:
        raise ConfigError(f"{metric} is not an accuracy metric; give --metric f1 or em")
    if not 0 < min_gain < kind.score_range[1] - kind.score_range[0]:
        raise ConfigError(
            f"min_gain={min_gain:g} is not a gain in {metric}; give one above 0, such as 0.05"
        )
    groups: list[Sequence[Evaluation]] = []
    for entry in runs:
        groups.append([entry] if isinstance(entry, Evaluation) else entry)
    few = "advice chooses between programs: give two runs or more"
    if len(groups) < 2:
        raise ConfigError(few)
    data = {run.card.data.digest: run for run in chain.from_iterable(groups)}
    if len(data) > 1:
        first, second = list(data.values())[:2]
        raise CompareError(
            f"{first.folder} and {second.folder} are over different data; advice is for one data "
            "set, and a variant (--rename-entities, --unanswerable) is another one"
        )
    labels_of_arms = list(labels or [group[0].folder.name for group in groups])
    for group in groups:
        for run in group:
            read_for(run, [metric, *SPENDING])
    places, unfit = comparable(groups, degenerate=degenerate)
    left_out = sorted(f"left out: {labels_of_arms[at]}, which {why}" for at, why in unfit.items())
    if len(places) < 2:
        raise ConfigError("; ".join([few, *left_out]))
    groups = [groups[at] for at in places]
    family = make_family(groups, metric, common=common)
    every = list(chain.from_iterable(groups))
    scored, _ = Shared(family.questions, every[0]).scored(every, metric)
    arms = []
    for place, standing in zip(places, family.standings, strict=True):
        arms.append(RankedProgram(**vars(standing), label=labels_of_arms[place]))
    choice = decide(arms, family, min_gain, len(scored))
    best = arms[family.best]
    explained = []
    for at, arm in enumerate(arms):
        words = _why(arm, best, family.cost)
        if at == choice.use:
            words = ["use", *words]
        explained.append(replace(arm, why=", ".join(words)))

    def arm_at(place: int | None) -> RankedProgram | None:
        return None if place is None else explained[place]

    return Advice(
        metric=metric,
        min_gain=min_gain,
        cost=family.cost,
        questions=scored,
        clusters=family.clusters,
        arms=sorted(
            explained, key=lambda arm: (-round(arm.mean, 9), arm.cost(family.cost), arm.label)
        ),
        use=arm_at(choice.use),
        best=explained[family.best],
        rival=arm_at(choice.rival),
        against=arm_at(choice.against),
        family=family,
        test=family.between(choice.against, choice.rival),
        left_out=left_out,
    )


def decide(arms: Sequence[RankedProgram], family: Family, min_gain: float, n: int) -> Choice:
    """Choose the program to use.

    Args:
        arms: The programs, in the order of the family.
        family: Tests of every pair of them.
        min_gain: Smallest gain that justifies a more expensive program.
        n: Number of questions.

    Returns:
        The cheapest program over which no other gains `min_gain`, if every cheaper one is
        significantly worse.
    """
    places = [at for at, arm in enumerate(arms) if not arm.mostly_without_gold]
    if not places or n < metrics.LEAST_PILOT:
        return Choice(None)
    measure = family.cost
    priced = all(arms[at].cost(measure) < math.inf for at in places)
    order = sorted(places, key=lambda at: (arms[at].cost(measure), -arms[at].mean, arms[at].label))
    if not priced:
        order = [family.best]
    at_most = metrics.holm(
        [max(_gains(family, at, places, min_gain).values(), default=0.0) for at in order]
    )
    for place, p in zip(order, at_most, strict=True):
        if p > metrics.ALPHA:
            continue
        for cheaper in places:
            test = family.between(place, cheaper)
            if test and arms[cheaper].is_cheaper(arms[place], measure) and test.outcome != "worse":
                return Choice(None, rival=cheaper, against=place)
        return Choice(place)
    gains = _gains(family, family.best, places, min_gain)
    return Choice(None, rival=max(gains, key=gains.__getitem__), against=family.best)


def _gains(family: Family, at: int, places: Sequence[int], min_gain: float) -> dict[int, float]:
    """Return by other program the p-value of its gaining `min_gain` or more over that at `at`."""
    p_values = {}
    for rival in places:
        test = family.between(at, rival)
        if test is not None:
            p_values[rival] = test.p_gains(min_gain)
    return p_values


def _lacking(arm: RankedProgram) -> str:
    return f"{arm.without_gold} of {arm.right} right answers lack gold passages in context"


def _why(arm: RankedProgram, best: RankedProgram, cost: str) -> list[str]:
    """Return what the advice says of `arm` next to the best, for the table."""
    if arm.mostly_without_gold:
        return [_lacking(arm)]
    if arm.to_best is None:
        return []
    words = []
    if arm.is_cheaper(best, cost):
        words.append("cheaper")
    if best.is_cheaper(arm, cost):
        words.append("more expensive")
    if arm.to_best.outcome == "worse":
        return [*words, "significantly worse"]
    return [*words, "not significantly worse"]
