"""Which of several programs to use: the cheapest that is not shown worse than the best mean.

The best mean is tested against every cheaper program over the same questions, by the paired test of
`ragbench compare`, with Holm's correction over these tests. Nothing depends on the order of the
runs or of their records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.arms import clusters_of, columns, shared_questions
from ragbench.experiments.runs import Evaluation
from ragbench.metrics import (
    Comparison,
    Interval,
    Method,
    compare_scores,
    correct,
    get_metric,
    mean_interval,
)
from ragbench.record import Record

Floats = NDArray[np.float64]
#: What a question takes, by the metric that measures it; the first that says something is the cost.
SPENDING = ("cost_usd", "tokens", "calls")


@dataclass(frozen=True)
class Limits:
    """What a question may take on average; None for no limit. Cost is in US dollars."""

    cost_usd: float | None = None
    calls: float | None = None
    tokens: float | None = None

    def given(self) -> dict[str, float]:
        """The limits that are set, by the metric that measures them."""
        return {name: float(limit) for name, limit in asdict(self).items() if limit is not None}


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Advice:
    """The program to use, and the best mean.

    `arms` are sorted by mean, the best first, and of equal means by cost. `difference` is `best`
    minus `use`, question by question; None where both are one program. `cost` is the measure by
    which programs are cheap or dear. `over_limit` are the programs that pass a limit; they are not
    among `arms`.
    """

    metric: str
    cost: str
    #: The text of each question by its id, sorted by id.
    questions: Mapping[str, str]
    #: The cluster of each question; empty where questions stand alone.
    clusters: Mapping[str, str]
    arms: Sequence[Arm]
    use: Arm
    best: Arm
    difference: Comparison | None
    over_limit: Sequence[str] = ()

    @property
    def needed(self) -> int | None:
        """How many questions would tell the two apart; None where that cannot be said."""
        return self.difference.n_needed if self.difference else None

    def sentences(self) -> list[str]:
        """The advice in words, the program to use first."""
        use, best = self.use.label, self.best.label
        cheaper = any(_cost(arm, self.cost) < _cost(self.best, self.cost) for arm in self.arms)
        if self.difference is None:
            why = "shown better than every cheaper program" if cheaper else "none is cheaper"
            lines = [f"use {use}: the best mean, and {why}"]
        else:
            lines = [
                f"use {use}: the cheapest not shown worse than the best mean "
                f"({best} {_signed(self.difference)})"
            ]
            if self.needed is not None:
                lines.append(f"to tell {best} from {use}: about {self.needed:,} questions")
        if self.over_limit:
            lines.append(f"over the limits: {', '.join(self.over_limit)}")
        return lines


def advise(
    runs: Sequence[Evaluation],
    metric: str = "f1",
    *,
    labels: Sequence[str] = (),
    limits: Limits | None = None,
    common: bool = False,
) -> Advice:
    """What `runs` say of which program to use; `labels` are their names, by default the folders'.

    With `common` the questions that all runs have are enough.

    Raises:
        UnknownNameError: there is no such metric.
        ConfigError: fewer than two runs, a metric that is not of accuracy, a limit on what is not
            known of a question, or limits that no program keeps.
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
    for number, run in enumerate(runs):
        scores = np.array([scored[qid][number] for qid in scored], dtype=np.float64)
        arms.append(
            Arm(
                label=labels[number] if labels else run.folder.name,
                run=run,
                scores=scores,
                mean=float(scores.mean()),
                interval=mean_interval(scores, kind.score_range, names),
                spending={name: _spent(run, list(scored), name) for name in SPENDING},
            )
        )
    arms, over = _within(arms, limits or Limits())
    cost = next(name for name in SPENDING if name == SPENDING[-1] or _tells(arms, name))
    arms.sort(
        key=lambda arm: (-round(arm.mean, 9), _cost(arm, cost), arm.label, str(arm.run.folder))
    )
    use, difference = _cheapest(arms, list(scored), cost, kind.score_range, clusters)
    questions = shared.column(_question)
    return Advice(
        metric=metric,
        cost=cost,
        questions={qid: questions[qid] for qid in scored},
        clusters=clusters,
        arms=arms,
        use=use,
        best=arms[0],
        difference=difference,
        over_limit=over,
    )


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
    best = arms[0]
    cheaper = [arm for arm in arms if _cost(arm, cost) < _cost(best, cost)]
    theirs = dict(zip(qids, best.scores.tolist(), strict=True))
    compared = correct(
        [
            compare_scores(
                dict(zip(qids, arm.scores.tolist(), strict=True)),
                theirs,
                score_range=score_range,
                method=Method(clusters=clusters),
            )
            for arm in cheaper
        ]
    )
    open_ones = [
        (arm, difference)
        for arm, difference in zip(cheaper, compared, strict=True)
        if not difference.verdict.startswith("better")
    ]
    if not open_ones:
        return best, None
    return min(open_ones, key=lambda one: (_cost(one[0], cost), -one[0].mean, one[0].label))


def _within(arms: Sequence[Arm], limits: Limits) -> tuple[list[Arm], list[str]]:
    """The arms that keep `limits` on average, and the names of the others."""
    kept = list(arms)
    for name, limit in limits.given().items():
        spent = [arm.spending[name] for arm in arms]
        known = [value for value in spent if value is not None]
        if len(known) < len(arms):
            raise ConfigError(
                f"{name} is not known of every question; leave that limit out, or give a price"
            )
        if min(known) > limit:
            raise ConfigError(
                f"no program keeps within {name} {limit:g} per question; the cheapest takes "
                f"{min(known):.4g}"
            )
        kept = [arm for arm in kept if (arm.spending[name] or 0.0) <= limit]
    if not kept:
        raise ConfigError("no program keeps within all the limits; raise one")
    return kept, sorted(arm.label for arm in arms if arm not in kept)


def _spent(run: Evaluation, qids: Sequence[str], name: str) -> float | None:
    each = run.records.only(qids).column(get_metric(name).score)
    values = [value for qid in qids if (value := each[qid]) is not None]
    return float(np.mean(values)) if len(values) == len(qids) else None


def _tells(arms: Sequence[Arm], name: str) -> bool:
    """Whether the measure is known of every arm, and not 0 for all, as of local models."""
    return all(arm.spending[name] is not None for arm in arms) and any(
        arm.spending[name] for arm in arms
    )


def _cost(arm: Arm, name: str) -> float:
    return arm.spending[name] or 0.0


def _signed(difference: Comparison) -> str:
    ends = difference.interval
    shown = f"{difference.difference:+.3f}"
    return shown if ends is None else f"{shown} [{ends.low:+.3f}, {ends.high:+.3f}]"


def _question(record: Record) -> str:
    return record.question
