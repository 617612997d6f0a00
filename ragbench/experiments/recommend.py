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
from ragbench.errors import ConfigError
from ragbench.experiments.compare.family import Family, default_baseline, make_family
from ragbench.experiments.compare.paired import columns, question, read_for, shared_questions
from ragbench.experiments.runs.settings import compiled_from
from ragbench.experiments.runs.summary import EVIDENCE, Evaluation, shows_method

Floats = NDArray[np.float64]
#: What a question takes, by the metric that measures it; the first that says something is the cost.
SPENDING = ("cost_usd", "tokens", "calls")
#: The least gain in the mean that pays for a dearer program, unless told otherwise.
WORTH = 0.05
#: A run is left out where it has less than this share of the questions of the largest.
_LEAST_SHARE = 0.5
#: A program is not advised where more of its right answers than this lack their evidence.
_MOST_WITHOUT = 0.5


@dataclass(frozen=True, eq=False)
class Arm:
    """A program over all questions, in the order of `Advice.questions`.

    `spending` is the mean per question by each of `SPENDING`, None where it is not known.
    `below_best` is this arm minus the best, None for the best; `p_worth` is the p-value (Holm over
    the cheaper programs) of its being `worth` or more below the best, None where it is not cheaper.
    Of `right` answers whose gold passages are known, `without_evidence` were given without all of
    them. `why` is what the advice says of it, in words.
    """

    label: str
    run: Evaluation
    scores: Floats
    mean: float
    interval: metrics.Interval | None
    spending: Mapping[str, float | None]
    below_best: metrics.Comparison | None = None
    p_worth: float | None = None
    without_evidence: int = 0
    right: int = 0
    why: str = ""

    def cost(self, measure: str) -> float:
        """The mean per question by `measure`, in dollars, tokens or calls; infinite if unknown."""
        return _known(self.spending[measure])

    def is_cheaper(self, rival: "Arm", measure: str) -> bool:
        """Whether it is known to take less by `measure` than `rival`."""
        return self.cost(measure) < rival.cost(measure) < math.inf

    @property
    def lacks_evidence(self) -> bool:
        """Whether most of its right answers were given without their evidence."""
        return _mostly(self.without_evidence, self.right)


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
        n = len(self.questions)
        lines = [self._headline()]
        if self.rival is not None:
            lines.append(self._needed(self.rival))
        shared = f"{n} questions, all shared"
        if self.clusters:
            shared += f", about {len(set(self.clusters.values()))} documents"
        lines += [shared, *self.left_out]
        return lines

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
                f"({_difference(self.rival)})"
            )
        if use is not best:
            return (
                f"use {use.label}: the cheapest shown less than {self.worth:g} below the best mean "
                f"({best.label}; {_difference(use)})"
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
        c = rival.below_best
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


def _difference(arm: Arm) -> str:
    c = arm.below_best
    if c is None:
        return ""
    if c.interval is None:
        return f"{c.difference:+.3f}"
    return f"{c.difference:+.3f} [{c.interval.low:+.3f}, {c.interval.high:+.3f}]"


def _two_figures(n: int) -> str:
    return f"{float(f'{n:.2g}'):,.0f}"  # it comes from a difference that is itself uncertain


def advise(
    runs: Sequence[Evaluation | Sequence[Evaluation]],
    metric: str = "f1",
    *,
    labels: Sequence[str] = (),
    common: bool = False,
    worth: float = WORTH,
) -> Advice:
    """What `runs` say of which program to use; `labels` are their names, by default the folders'.

    Runs that are given together are the seeds of one program, and are pooled. With `common` the
    questions that all runs have are enough. A run that shares less than half of the questions of
    the largest is left out, whatever `common` is. `worth` is the least gain in the mean that pays
    for a dearer program.

    Raises:
        ConfigError: there are fewer than two runs, or `metric` is no measure of accuracy.
        CompareError: the runs are over other data, or share no question.
    """
    kind = metrics.get_metric(metric)
    if not kind.higher_is_better or kind.score_range is None:
        raise ConfigError(f"{metric} is no measure of accuracy; give --metric f1 or em")
    if not 0 < worth < kind.score_range[1] - kind.score_range[0]:
        raise ConfigError(f"worth={worth:g} is no gain in {metric}; give one above 0, such as 0.05")
    groups: list[list[Evaluation]] = []
    for entry in runs:
        if isinstance(entry, Evaluation):
            groups.append([entry])
        else:
            groups.append(list(entry))
    labels_all = list(labels or [group[0].folder.name for group in groups])
    for group in groups:
        for run in group:
            read_for(run, [metric, *SPENDING])
    large_enough, left_out = _large_enough([group[0] for group in groups], labels_all)
    if len(large_enough) < 2:
        raise ConfigError(
            "; ".join(["advice chooses between programs: give two runs or more", *left_out])
        )
    large_enough.sort(key=lambda at: (labels_all[at], str(groups[at][0].folder)))
    labels_all = [labels_all[at] for at in large_enough]
    groups = [groups[at] for at in large_enough]
    every = list(chain.from_iterable(groups))
    qids = set(every[0].records)
    for run in every[1:]:
        qids &= set(shared_questions(every[0], run, common=common))
    before, after = columns(every[:1], every[1:], metric, sorted(qids))
    spending = []
    for group in groups:
        spending.append({name: _spent(group, list(before), name) for name in SPENDING})
    cost = _measure_of_cost(spending)
    evidence = [_without_evidence(group, list(before)) for group in groups]
    barred = []
    for at, (without, right) in enumerate(evidence):
        if _mostly(without, right):
            barred.append(at)
    firsts = [group[0] for group in groups]
    family = make_family(
        groups,
        metric,
        baseline=default_baseline(firsts),
        common=True,
        prefer=[_known(spent[cost]) for spent in spending],
        barred=barred if len(barred) < len(groups) else (),
        befores=compiled_from(firsts),
    )
    scores = np.array([before[qid] + after[qid] for qid in before], dtype=np.float64)
    arms = []
    start = 0
    for at, standing in enumerate(family.standings):
        end = start + len(groups[at])
        without, right = evidence[at]
        arm = Arm(
            label=labels_all[at],
            run=groups[at][0],
            scores=scores[:, start:end].mean(axis=1),
            mean=standing.mean,
            interval=standing.interval,
            spending=spending[at],
            below_best=standing.to_best,
            without_evidence=without,
            right=right,
        )
        arms.append(arm)
        start = end
    texts = every[0].records.only(before).column(question)
    best = arms[family.best]
    judged = _with_worth(arms, best, worth, cost)
    best = judged[family.best]
    use, rival = _chosen(judged, best, cost, len(before))
    explained = {}
    for arm in judged:
        explained[arm.label, arm.run.folder] = replace(arm, why=_why(arm, best, use, worth, cost))
    places = sorted(
        explained.values(), key=lambda arm: (-round(arm.mean, 9), arm.cost(cost), arm.label)
    )

    def same(arm: Arm | None) -> Arm | None:
        if arm is None:
            return None
        return explained[arm.label, arm.run.folder]

    return Advice(
        metric=metric,
        worth=worth,
        cost=cost,
        questions={qid: texts[qid] for qid in before},
        clusters=family.clusters,
        arms=places,
        use=same(use),
        best=explained[best.label, best.run.folder],
        rival=same(rival),
        family=family,
        left_out=left_out,
    )


def _large_enough(runs: Sequence[Evaluation], labels: Sequence[str]) -> tuple[list[int], list[str]]:
    """The places of the runs that share enough questions, and a line for each other run."""
    if not runs:
        return [], []
    largest = max(range(len(runs)), key=lambda at: (len(runs[at].records), labels[at]))
    questions = runs[largest].records
    indices = []
    left_out = []
    telling = set()
    for at, run in enumerate(runs):
        if shows_method(run.summary):
            telling.add(at)
    for at, run in enumerate(runs):
        n = sum(qid in questions for qid in run.records)
        other_data = run.card.data.digest != runs[largest].card.data.digest
        if len(telling) >= 2 and at not in telling:
            left_out.append(f"left out: {labels[at]}, which reads all passages or has a bare index")
        elif other_data or n >= _LEAST_SHARE * len(questions):
            indices.append(at)
        else:
            left_out.append(f"left out: {labels[at]}, which has {n} of {len(questions)} questions")
    return indices, sorted(left_out)


def _measure_of_cost(spending: Sequence[Mapping[str, float | None]]) -> str:
    """The first measure that is known of every program, and not 0 for all as of local models.

    Where there is none it is the last one, which may be unknown: then nothing is cheaper.
    """
    for name in SPENDING:
        values = [spent[name] for spent in spending]
        if None not in values and any(values):
            return name
    return SPENDING[-1]


def _with_worth(arms: Sequence[Arm], best: Arm, worth: float, cost: str) -> list[Arm]:
    """The arms with `p_worth`, Holm over those that are cheaper than the best."""
    p_values: dict[int, float] = {}
    for at, arm in enumerate(arms):
        c = arm.below_best
        if c is not None and not arm.lacks_evidence and arm.is_cheaper(best, cost):
            p_values[at] = c.p_behind(worth)
    adjusted = dict(zip(p_values, metrics.holm(list(p_values.values())), strict=True))
    judged = []
    for at, arm in enumerate(arms):
        judged.append(replace(arm, p_worth=adjusted.get(at)))
    return judged


def _chosen(arms: Sequence[Arm], best: Arm, cost: str, n: int) -> tuple[Arm | None, Arm | None]:
    """The program to use, and the one that it cannot be told from where there is none to use."""
    if best.lacks_evidence:
        return None, None
    cheaper = []
    for arm in arms:
        if arm.p_worth is not None:
            cheaper.append(arm)
    cheaper.sort(key=lambda arm: (arm.cost(cost), -arm.mean, arm.label))
    undecided = None
    for arm in cheaper:
        if arm.p_worth is not None and arm.p_worth <= metrics.ALPHA:
            return arm, None
        if undecided is None and not _shown_worse(arm):
            undecided = arm
    if undecided is not None:
        return None, undecided
    return (None if n < metrics.LEAST_PILOT else best), None


def _shown_worse(arm: Arm) -> bool:
    return arm.below_best is not None and arm.below_best.verdict.startswith("worse")


def _why(arm: Arm, best: Arm, use: Arm | None, worth: float, cost: str) -> str:
    """What the advice says of `arm`, for the table."""
    words = []
    if arm is use:
        words.append("use")
    if arm.lacks_evidence:
        words.append(f"{arm.without_evidence} of {arm.right} right answers lack their evidence")
    elif arm.below_best is not None:
        if arm.is_cheaper(best, cost):
            words.append("cheaper")
        elif best.is_cheaper(arm, cost):
            words.append("dearer")
        if arm.p_worth is not None and arm.p_worth <= metrics.ALPHA:
            words.append(f"shown less than {worth:g} below the best")
        elif _shown_worse(arm):
            words.append("shown worse")
        else:
            words.append("not shown worse")
    return ", ".join(words)


def _known(amount: float | None) -> float:
    """The amount, infinite where it is not known: an unknown price is not a low one."""
    if amount is None:
        return math.inf
    return amount


def _spent(runs: Sequence[Evaluation], qids: Sequence[str], name: str) -> float | None:
    values = []
    for run in runs:
        column = run.records.only(qids).column(metrics.get_metric(name).score)
        for qid in qids:
            value = column[qid]
            if value is None:
                return None
            values.append(value)
    return float(np.mean(values))


def _without_evidence(runs: Sequence[Evaluation], qids: Sequence[str]) -> tuple[int, int]:
    """How many right answers (EM 1) lacked a gold passage, of those whose gold is known."""
    shares = []
    for run in runs:
        records = run.records.only(qids)
        correct = records.column(metrics.get_metric("em").score)
        evidence = records.column(metrics.get_metric(EVIDENCE).score)
        shares += [evidence[q] for q in qids if correct[q] == 1 and evidence[q] is not None]
    return sum(share != 1 for share in shares), len(shares)


def _mostly(without: int, right: int) -> bool:
    return without > _MOST_WITHOUT * right
