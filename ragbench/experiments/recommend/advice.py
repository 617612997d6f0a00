"""Which of several programs to use: the cheapest that is not shown worse than the best mean.

The best mean is tested against every cheaper program over the same questions, by the paired test of
`ragbench compare`, with Holm's correction over these tests. Nothing depends on the order of the
runs or of their records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.paired import clusters_of, columns, shared_questions
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import (
    LEAST_PILOT,
    Comparison,
    Interval,
    Method,
    compare_scores,
    correct,
    get_metric,
    mean_interval,
)

Floats = NDArray[np.float64]
#: What a question takes, by the metric that measures it; the first that says something is the cost.
SPENDING = ("cost_usd", "tokens", "calls")


@dataclass(frozen=True, eq=False)
class Arm:
    """A program over all questions, in the order of `Advice.questions`.

    `spending` is the mean per question by each of `SPENDING`, None where it is not known.
    """

    label: str
    run: Evaluation
    scores: Floats
    mean: float
    interval: Interval | None
    spending: Mapping[str, float | None]

    def cost(self, name: str) -> float:
        """The mean per question by the measure `name`; 0 where it is not known."""
        return self.spending[name] or 0.0


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
    difference: Comparison | None

    def sentences(self) -> list[str]:
        """The advice in words, the program to use first."""
        use, best, c = self.use.label, self.best.label, self.difference
        if c is None:
            dearest = all(arm.cost(self.cost) >= self.best.cost(self.cost) for arm in self.arms)
            why = "none is cheaper" if dearest else "shown better than every cheaper program"
            lines = [f"use {use}: the best mean, and {why}"]
        else:
            ends = f" [{c.interval.low:+.3f}, {c.interval.high:+.3f}]" if c.interval else ""
            lines = [
                f"use {use}: the cheapest not shown worse than the best mean "
                f"({best} {c.difference:+.3f}{ends})"
            ]
            if c.n < LEAST_PILOT:
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

    Raises:
        UnknownNameError: there is no such metric.
        ConfigError: fewer than two runs, or a metric that is not of accuracy.
        CompareError: the runs are over other data or, without `common`, other questions.
    """
    kind = get_metric(metric)
    if not kind.higher_is_better or kind.score_range is None:
        raise ConfigError(f"{metric} is no measure of accuracy; give --metric f1 or em")
    if len(runs) < 2:
        raise ConfigError("advice chooses between programs: give two runs or more")
    scored = _scores(runs, metric, common=common)
    shared = runs[0].records.only(scored)
    clusters = clusters_of(shared)
    names = [clusters[qid] for qid in scored] if clusters else None
    arms = []
    labels = labels or [run.folder.name for run in runs]
    table = np.array(list(scored.values()), dtype=np.float64)
    for label, run, scores in zip(labels, runs, table.T.copy(), strict=True):
        interval = mean_interval(scores, kind.score_range, names)
        spent = {name: _spent(run, list(scored), name) for name in SPENDING}
        arms.append(Arm(label, run, scores, float(scores.mean()), interval, spent))
    # A measure that is not known of every program, or 0 for all as of local models, tells nothing.
    cost = next(
        name
        for name in SPENDING
        if name == SPENDING[-1]
        or (all(arm.spending[name] is not None for arm in arms) and any(a.cost(name) for a in arms))
    )
    arms.sort(key=lambda arm: (-round(arm.mean, 9), arm.cost(cost), arm.label, str(arm.run.folder)))
    use, difference = _cheapest(arms, list(scored), cost, kind.score_range, clusters)
    texts = shared.column(lambda record: record.question)
    questions = {qid: texts[qid] for qid in scored}
    return Advice(metric, cost, questions, clusters, arms, use, arms[0], difference)


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
) -> tuple[Arm, Comparison | None]:
    """The cheapest arm that the first is not shown better than, and the first minus that one."""
    best, method = arms[0], Method(clusters=clusters)
    cheaper = [arm for arm in arms if arm.cost(cost) < best.cost(cost)]
    scores = [dict(zip(qids, arm.scores.tolist(), strict=True)) for arm in (best, *cheaper)]
    compared = correct(
        [compare_scores(s, scores[0], score_range=score_range, method=method) for s in scores[1:]]
    )
    pairs = zip(cheaper, compared, strict=True)
    open_ones = [(arm, c) for arm, c in pairs if not c.verdict.startswith("better")]
    if not open_ones:
        return best, None
    return min(open_ones, key=lambda one: (one[0].cost(cost), -one[0].mean, one[0].label))


def _spent(run: Evaluation, qids: Sequence[str], name: str) -> float | None:
    each = run.records.only(qids).column(get_metric(name).score)
    values = [value for qid in qids if (value := each[qid]) is not None]
    return float(np.mean(values)) if len(values) == len(qids) else None
