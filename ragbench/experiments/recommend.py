"""Which of several programs to use: the cheapest that is shown to be worth as much as the best.

A cheaper program is advised only where its mean is shown to be less than `worth` below the best,
the least gain that would pay for the dearer one; the best mean, where it is shown better than every
cheaper program, or where none is cheaper. Else the advice is that the questions do not tell, and
how many would. All tests are those of one family (`compare.family`). Nothing depends on the order
of the runs or of their records.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ragbench import metrics
from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.family import (
    SPENDING,
    Family,
    Standing,
    comparable,
    make_family,
    or_infinite,
)
from ragbench.experiments.compare.paired import Shared, question, read_for
from ragbench.experiments.runs.summary import Evaluation

Floats = NDArray[np.float64]
#: The least gain in the mean that pays for a dearer program, unless told otherwise.
WORTH = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class Arm(Standing):
    """A program over all questions, with its `scores` in the order of `Advice.questions`.

    `p_worth` is the p-value (Holm over the cheaper programs) of its being `worth` or more below the
    best, None where it is not cheaper. `why` is what the advice says of it.
    """

    label: str
    scores: Floats
    p_worth: float | None = None
    why: str = ""

    def cost(self, measure: str) -> float:
        """The mean per question by `measure`, in dollars, tokens or calls; infinite if unknown."""
        return or_infinite(self.spending[measure])

    def is_cheaper(self, rival: "Arm", measure: str) -> bool:
        """Whether it is known to take less by `measure` than `rival`."""
        return self.cost(measure) < rival.cost(measure) < math.inf


@dataclass(frozen=True)
class Advice:
    """The program to use, if the questions tell, and the best mean.

    `use` is None where it is undecided; `rival` is then the cheapest program that is neither shown
    worse than the best nor shown to be worth as much. `cost` is the measure by which programs are
    cheap or dear; `questions` are texts by id, and `clusters` are empty where questions stand
    alone. `arms` are sorted by mean, the best first, and of equal means by cost. `best` is the best
    of those that have evidence for their answers. `left_out` has a line for each run that shares
    too few questions. `family` has every test.
    """

    metric: str
    worth: float
    cost: str
    questions: Mapping[str, str]
    clusters: Mapping[str, str]
    arms: Sequence[Arm]
    use: Arm | None
    best: Arm
    rival: Arm | None
    family: Family
    left_out: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """The advice in words, the program to use first."""
        lines = [self._headline()]
        if self.rival is not None:
            lines.append(self._needed(self.rival))
        return [*lines, *self.left_out]

    def _headline(self) -> str:
        best = self.best
        use = self.use
        if use is None:
            if best.lacks_evidence:
                return "no program is advised: most right answers of each lack their evidence"
            if self.rival is None:
                return f"undecided: {len(self.questions)} questions are too few to advise by"
            return (
                f"undecided: {best.label} has the best mean, and {self.rival.label}, which is "
                f"cheaper, is neither shown worse nor shown less than {self.worth:g} below it "
                f"({_gain(self.rival)})"
            )
        if use is not best:
            return (
                f"use {use.label}: the cheapest shown less than {self.worth:g} below the best mean "
                f"({best.label}; {_gain(use)})"
            )
        unknown = []
        for arm in self.arms:
            if arm.spending[self.cost] is None:
                unknown.append(arm.label)
        if unknown:
            why = f"what {' and '.join(unknown)} takes is not known, so no price is weighed"
            return f"use {use.label}: the best mean, and {why}"
        if any(arm.is_cheaper(best, self.cost) for arm in self.arms):
            return f"use {use.label}: the best mean, and shown better than every cheaper program"
        return f"use {use.label}: the best mean, and none is cheaper"

    def _needed(self, rival: Arm) -> str:
        few = "too few to say how many would tell"
        c = rival.to_best
        if c is None:
            return ""
        if c.n < metrics.LEAST_PILOT:
            return f"{c.n} questions are {few}"
        if c.clusters is not None and c.clusters <= metrics.FEW_CLUSTERS:
            return f"{c.clusters} documents are {few}; ask about more documents"
        needed = questions_to_tell(c, self.worth, self.family.tests)
        if needed is None:
            return f"no number of questions would tell {self.best.label} from {rival.label}"
        count = _two_figures(needed)
        return f"to tell {self.best.label} from {rival.label}: about {count} questions would tell"


def questions_to_tell(c: metrics.Comparison, worth: float, tests: int) -> int | None:
    """The fewest questions that show B below A at all, or less than `worth` below it; or None."""
    test = c.planned(tests)
    if test is None:
        return None
    below = -c.difference if c.higher_is_better else c.difference
    options = []
    for distance in (below, worth - below):
        if distance > 1e-9:
            needed = test.questions(distance, c.sd**2)
        else:
            needed = None
        if needed is not None:
            options.append(max(needed, c.n + 1))
    return min(options, default=None)


def _gain(arm: Arm) -> str:
    return arm.to_best.gain if arm.to_best else ""


def _two_figures(n: int) -> str:
    return f"{float(f'{n:.2g}'):,.0f}"  # it comes from a difference that is itself uncertain


def advise(
    runs: Sequence[Evaluation | Sequence[Evaluation]],
    metric: str = "f1",
    *,
    labels: Sequence[str] = (),
    common: bool = False,
    worth: float = WORTH,
    unshown: bool = False,
) -> Advice:
    """What `runs` say of which program to use; `labels` are their names, by default the folders'.

    Runs that are given together are the seeds of one program, and are pooled. With `common` the
    questions that all runs have are enough. A run that shares less than half of the questions of
    the largest is left out, whatever `common` is. `worth` is the least gain in the mean that pays
    for a dearer program. `unshown` weighs runs too that cannot show their method.

    Raises:
        ConfigError: there are fewer than two runs, or `metric` is no measure of accuracy.
        CompareError: the runs are over other data, or share no question.
    """
    kind = metrics.get_metric(metric)
    if not kind.higher_is_better or kind.score_range is None:
        raise ConfigError(f"{metric} is no measure of accuracy; give --metric f1 or em")
    if not 0 < worth < kind.score_range[1] - kind.score_range[0]:
        raise ConfigError(f"worth={worth:g} is no gain in {metric}; give one above 0, such as 0.05")
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
            "set, and a variant (--renamed, --unanswerable) is another one"
        )
    labels_of_arms = list(labels or [group[0].folder.name for group in groups])
    for group in groups:
        for run in group:
            read_for(run, [metric, *SPENDING])
    places, unfit = comparable(groups, unshown=unshown)
    left_out = sorted(f"left out: {labels_of_arms[at]}, which {why}" for at, why in unfit.items())
    if len(places) < 2:
        raise ConfigError("; ".join([few, *left_out]))
    groups = [groups[at] for at in places]
    family = make_family(groups, metric, common=common)
    every = list(chain.from_iterable(groups))
    scored, scores = Shared(family.questions, every[0]).scored(every, metric)
    arms = []
    start = 0
    for place, standing in zip(places, family.standings, strict=True):
        end = start + len(standing.runs)
        scores_of_arm = scores[start:end].mean(axis=0)
        arm = Arm(**vars(standing), label=labels_of_arms[place], scores=scores_of_arm)
        arms.append(arm)
        start = end
    arms = _with_worth(arms, arms[family.best], worth, family.cost)
    use, rival = _chosen(arms, family, len(scored))
    best = arms[family.best]
    explained = []
    for at, arm in enumerate(arms):
        why = _why(arm, best, worth, family.cost)
        if at == use:
            why = ", ".join(filter(None, ("use", why)))
        explained.append(replace(arm, why=why))
    texts = every[0].records.only(scored).column(question)
    return Advice(
        metric=metric,
        worth=worth,
        cost=family.cost,
        questions={qid: texts[qid] for qid in scored},
        clusters=family.clusters,
        arms=sorted(
            explained, key=lambda arm: (-round(arm.mean, 9), arm.cost(family.cost), arm.label)
        ),
        use=None if use is None else explained[use],
        best=explained[family.best],
        rival=None if rival is None else explained[rival],
        family=family,
        left_out=left_out,
    )


def _with_worth(arms: Sequence[Arm], best: Arm, worth: float, cost: str) -> list[Arm]:
    """The arms with `p_worth`, Holm over those that are cheaper than the best."""
    p_values: dict[int, float] = {}
    for at, arm in enumerate(arms):
        c = arm.to_best
        if c is not None and not arm.lacks_evidence and arm.is_cheaper(best, cost):
            p_values[at] = c.p_behind(worth)
    adjusted = dict(zip(p_values, metrics.holm(list(p_values.values())), strict=True))
    return [replace(arm, p_worth=adjusted.get(at)) for at, arm in enumerate(arms)]


def _chosen(arms: Sequence[Arm], family: Family, n: int) -> tuple[int | None, int | None]:
    """The place of the program to use, and of the one that the best cannot be told from."""
    if arms[family.best].lacks_evidence:
        return None, None
    undecided = None
    order = sorted(
        range(len(arms)),
        key=lambda at: (arms[at].cost(family.cost), -arms[at].mean, arms[at].label),
    )
    for at in order:
        p = arms[at].p_worth
        if p is None:  # it is not cheaper
            continue
        if p <= metrics.ALPHA:
            return at, None
        if undecided is None and not _shown_worse(arms[at]):
            undecided = at
    if undecided is not None:
        return None, undecided
    return (None if n < metrics.LEAST_PILOT else family.best), None


def _shown_worse(arm: Arm) -> bool:
    return arm.to_best is not None and arm.to_best.verdict.startswith("worse")


def _why(arm: Arm, best: Arm, worth: float, cost: str) -> str:
    """What the advice says of `arm` beside the best, for the table."""
    if arm.lacks_evidence:
        return f"{arm.without_evidence} of {arm.right} right answers lack their evidence"
    if arm.to_best is None:
        return ""
    if arm.p_worth is not None and arm.p_worth <= metrics.ALPHA:
        words = f"shown less than {worth:g} below the best"
    elif _shown_worse(arm):
        words = "shown worse"
    else:
        words = "not shown worse"
    if arm.is_cheaper(best, cost):
        return f"cheaper, {words}"
    if best.is_cheaper(arm, cost):
        return f"dearer, {words}"
    return words
