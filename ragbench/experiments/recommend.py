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
from ragbench.experiments.letters import joined, letter_ranges
from ragbench.experiments.runs.summary import Evaluation

#: Smallest gain in the mean that justifies a more expensive program.
MIN_GAIN = 0.05
#: Maximum number of names in a list; of more, the sentence has the number.
_NAMES = 3
#: Maps a cost to the words for a lower one, and for the lowest.
_LESS = {
    "cost_usd": "costs {} % less",
    "tokens": "takes {} % fewer tokens",
    "calls": "makes {} % fewer calls",
}
_LEAST = {
    "cost_usd": "at the lowest cost",
    "tokens": "with the fewest tokens",
    "calls": "with the fewest calls",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class RankedProgram(ProgramStatistics):
    """A program in an advice: its standing, its name, and what the advice says of it.

    Attributes:
        label: Name of the program, with its letter if it has one.
        key: Letter of the program, for lists in a sentence.
        why: What the advice says of it.
    """

    label: str
    key: str = ""
    why: str = ""

    @property
    def subject(self) -> str:
        """The label before a verb: "A, ircot," if it is a letter and a name."""
        return f"{self.label}," if self.key not in ("", self.label) else self.label

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

    @property
    def is_worse(self) -> bool:
        """True if this program is significantly worse than the best one."""
        return self.to_best is not None and self.to_best.outcome == "worse"


@dataclass(frozen=True)
class Choice:
    """What the tests of a family say, by places of its arms.

    Attributes:
        use: The program to use. None if the questions do not tell.
        rival: The program that prevents an advice. None if there is an advice.
        against: The program that the rival cannot be told from.
        rivals: Every program that may gain enough over the best.
    """

    use: int | None
    rival: int | None = None
    against: int | None = None
    rivals: tuple[int, ...] = ()


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
        rivals: Every program that may gain `min_gain` over the best.
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
    rivals: Sequence[RankedProgram] = ()
    test: metrics.Comparison | None = None
    left_out: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """Return the advice in one sentence, then the runs that are left out."""
        return [self.headline(), *self.left_out]

    def headline(self) -> str:
        """Return the program to use, or what is known and what is not, in one sentence."""
        if self.best.mostly_without_gold:
            return "no program is advised: most right answers of each lack gold passages in context"
        parts = self._undecided() if self.use is None else [self._used(self.use)]
        if self._left_out:
            parts.append(
                f"{_named(self._left_out)} {_are(self._left_out)} left out: most right answers "
                "lack gold passages in context"
            )
        unknown = [arm for arm in self.arms if arm.spending[self.cost] is None]
        if unknown:
            has = "has" if len(unknown) == 1 else "have"
            parts.append(f"{_named(unknown)} {has} no price, so costs are not weighed")
        return "; ".join(parts)

    def _used(self, use: RankedProgram) -> str:
        within = f"no other program gains {self.min_gain:g} or more over it"
        if use is not self.best:
            return (
                f"use {use.label}: {within}, and it {_saving(use, self.best, self.cost)} than "
                f"{self.best.label}, which scores highest"
            )
        if len(self._worse) == len(self.arms) - 1:
            others = "all others are" if len(self.arms) > 2 else f"{_named(self._worse)} is"
            return f"use {use.label}: it scores highest, and {others} significantly worse"
        return f"use {use.label}: it scores highest, and {within}"

    def _undecided(self) -> list[str]:
        if self.rival is None or self.against is None or self.test is None:
            few = f"undecided: {len(self.questions)} questions are too few to advise by"
            return [few, f"{self.best.subject} scores highest so far"]
        parts = [self._known()]
        if self._worse:
            parts.append(f"{_named(self._worse)} {_are(self._worse)} significantly worse")
        against = self.against
        if against is not self.best:
            saving = _saving(against, self.best, self.cost)
            parts.append(f"{against.subject} {saving} and is less than {self.min_gain:g} worse")
        cheaper = self.rival.is_cheaper(against, self.cost)
        if cheaper:
            saving = _saving(self.rival, against, self.cost)
            doubt = f"undecided whether {self.rival.label}, which {saving}, is as good"
        else:
            doubt = (
                f"undecided: {_named(self.rivals)} may still gain {self.min_gain:g} or more over "
                f"{against.key or against.label}"
            )
        return [*parts, f"{doubt} ({self._needed(self.test, cheaper)})"]

    def _known(self) -> str:
        """Return which program scores highest, and whether it costs least of the best ones."""
        words = f"{self.best.subject} scores highest"
        higher = [arm for arm in self._left_out if arm.mean > self.best.mean]
        if higher:
            words += f" apart from {_named(higher)}"
        tied = [arm for arm in self._alike if round(arm.mean - self.best.mean, 9) == 0]
        if tied:
            words += f" (as {'do' if len(tied) > 1 else 'does'} {_named(tied)})"
        if self._alike and all(self.best.is_cheaper(arm, self.cost) for arm in self._alike):
            words += f" {_LEAST[self.cost]} of the {len(self._alike) + 1} best"
        return words

    @property
    def _worse(self) -> list[RankedProgram]:
        return [arm for arm in self.arms if arm.is_worse]

    @property
    def _alike(self) -> list[RankedProgram]:
        """Programs that may be as good as the best."""
        rest = []
        for arm in self.arms:
            if arm is not self.best and not arm.is_worse and not arm.mostly_without_gold:
                rest.append(arm)
        return rest

    @property
    def _left_out(self) -> list[RankedProgram]:
        """Programs without gold passages, except those that are worse anyway."""
        return [arm for arm in self.arms if arm.mostly_without_gold and not arm.is_worse]

    def _needed(self, c: metrics.Comparison, cheaper: bool) -> str:
        if c.n < metrics.LEAST_PILOT:
            return f"{c.n} questions are too few to say how many would tell"
        needed = required_sample_size(c, self.min_gain, self.family.tests, cheaper=cheaper)
        if needed is None:
            return "no number of questions would tell"
        return f"about {float(f'{needed:.2g}'):,.0f} questions would tell"


def _named(arms: Sequence[RankedProgram]) -> str:
    """Return the letters of programs, or their names if they have none."""
    if all(arm.key for arm in arms):
        return letter_ranges([arm.key for arm in arms])
    if len(arms) > _NAMES:
        return f"{len(arms)} programs"
    return joined([arm.label for arm in arms])


def _are(arms: Sequence[RankedProgram]) -> str:
    return "is" if len(arms) == 1 else "are"


def _saving(cheap: RankedProgram, rival: RankedProgram, cost: str) -> str:
    """Return how much less a cheaper program costs than its rival, such as "costs 24 % less"."""
    share = max(1, round(100 - 100 * cheap.cost(cost) / rival.cost(cost)))
    return _LESS[cost].format(share)


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
    keys: Sequence[str] = (),
    common: bool = False,
    min_gain: float = MIN_GAIN,
    degenerate: bool = False,
) -> Advice:
    """Advise which program to use.

    Args:
        runs: The runs of each program. Runs that are given together are seeds, and are pooled.
        metric: Metric of accuracy.
        labels: Names of the programs. Default: the names of their folders.
        keys: Letters of the programs. Default: none.
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
        key = keys[place] if keys else ""
        arms.append(RankedProgram(**vars(standing), label=labels_of_arms[place], key=key))
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
        rivals=[explained[at] for at in choice.rivals],
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
    rival = max(gains, key=gains.__getitem__)
    least = min(metrics.ALPHA, gains[rival])
    rivals = tuple(at for at, p in gains.items() if p >= least)
    return Choice(None, rival=rival, against=family.best, rivals=rivals)


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
    if arm.is_worse:
        return [*words, "significantly worse"]
    return [*words, "not significantly worse"]
