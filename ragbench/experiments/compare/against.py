"""Runs against the first of them: scores by the family of all, what a question costs, evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ragbench.errors import CompareError
from ragbench.experiments.compare.family import SPENDING, Family, comparable, make_family
from ragbench.experiments.compare.paired import (
    MEASURES,
    Arm,
    columns,
    compare_arms,
    cost_difference,
    matrix,
    mostly_right,
    read_for,
    shared_questions,
)
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import EVIDENCE, HEADLINE, Evaluation
from ragbench.metrics import Comparison, Method, Shares, correct, shares, spread_again

#: What a gate refuses: a new run that is worse, or one that is not better.
Gate = Literal["worse", "not-better"]


@dataclass(frozen=True)
class Noise:
    """What asking again tells of a difference on one metric.

    `a` and `b` are how far two means of that system with itself lie apart 95 times in 100, each
    asked once; None for a side without repeats. `shares` says where the variance comes from.
    """

    a: float | None
    b: float | None
    shares: Shares


@dataclass(frozen=True)
class RunComparison:
    """Run B against run A over the same questions.

    `scores` has one comparison per metric, over the questions that have it in both runs, p-values
    corrected over the family (Holm); `costs` has one per measure of cost, with an interval and no
    verdict; `evidence` is that of gold passages found, None where none are known. `fixed` and
    `broken` are the questions that B alone, or A alone, got exactly right. Where a side was asked
    several times, `a` or `b` is its first repeat, the scores are over all of `arms`, and `noise`
    has by metric what the repeats tell.
    """

    a: Evaluation
    b: Evaluation
    scores: Mapping[str, Comparison]
    costs: Mapping[str, Comparison | None]
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    evidence: Comparison | None = None
    arms: tuple[Arm, Arm] = ((), ())
    noise: Mapping[str, Noise] = field(default_factory=dict)

    @property
    def places(self) -> tuple[str, str]:
        """Where each side is, and how often it was asked where that is several times."""
        words = []
        for run, arm in ((self.a, self.arms[0]), (self.b, self.arms[1])):
            if len(arm) > 1:
                words.append(f"{run.folder.parent}, {len(arm)} repeats")
            else:
                words.append(str(run.folder))
        return words[0], words[1]

    def refused(self, gate: Gate) -> str:
        """Why `gate` refuses run B, in one line; empty where it passes.

        A difference that is shown to be within the margin counts as none.
        """
        for name, c in self.scores.items():
            if "by less than" not in c.verdict:
                outcome = c.verdict.partition(",")[0]
            else:
                outcome = "no more"
            if (outcome == "worse") if gate == "worse" else (outcome != "better"):
                if c.interval:
                    ends = f" [{c.interval.low:+.3f}, {c.interval.high:+.3f}]"
                else:
                    ends = ""
                return (
                    f"gate {gate}: {name} of {self.b.folder} against {self.a.folder}, "
                    f"{c.difference:+.3f}{ends}: {c.verdict}"
                )
        return ""


def compare_all(
    runs: Sequence[Evaluation | Arm],
    *,
    metrics: Sequence[str] = HEADLINE,
    common: bool = False,
    margin: float | None = None,
) -> list[RunComparison]:
    """Compare each further run with the first, by the one family of all of them for each metric.

    A run that was asked several times is given by its repeats. `common` leaves out questions that
    some run has not. `margin` is the difference too small to matter. Questions count by their
    clusters.

    Raises:
        CompareError: they are over other data or questions, or were judged by different models.
    """
    if len(runs) < 2:
        raise CompareError("give two runs or more; the first is the baseline")
    arms = [[run] if isinstance(run, Evaluation) else run for run in runs]
    for arm in arms:
        for run in arm:
            read_for(run, [*metrics, *SPENDING, EVIDENCE])
    places, _ = comparable(arms)
    questions = []
    for at, arm in enumerate(arms[1:], 1):
        shared = _shared([*arms[0], *arm], common)
        if common and 0 in places and at in places:
            for place in places:
                shared &= _shared([*arms[0], *arms[place]], common)
        questions.append(sorted(shared))
    scores: list[dict[str, Comparison]] = [{} for _ in questions]
    for metric in metrics:
        family = None
        if len(places) > 1:
            members = [arms[at] for at in places]
            family = make_family(members, metric, common=common, margin=margin)
        tests = _tests(arms, metric, questions, places, family, margin)
        for by_metric, test in zip(scores, tests, strict=True):
            by_metric[metric] = test
    results = []
    for arm, qids, by_metric in zip(arms[1:], questions, scores, strict=True):
        results.append(_compared(arms[0], arm, qids, by_metric))
    return results


def _shared(runs: Sequence[Evaluation], common: bool) -> set[str]:
    shared = set(runs[0].records)
    for run in runs[1:]:
        shared &= set(shared_questions(runs[0], run, common=common))
    return shared


def _tests(
    arms: Sequence[Arm],
    metric: str,
    questions: Sequence[Sequence[str]],
    places: Sequence[int],
    family: Family | None,
    margin: float | None,
) -> list[Comparison]:
    """A test of each further arm against the first, in their order.

    It is that of `family`, whose arms are those at `places`; where neither arm is its best or its
    baseline, or one of them is no part of it, the test is corrected beside it.
    """
    tests: dict[int, Comparison] = {}
    untested: dict[int, Comparison] = {}
    for at, qids in enumerate(questions, 1):
        test = None
        if family is not None and 0 in places and at in places:
            test = family.between(places.index(0), places.index(at))
        if test is not None:
            tests[at] = test
            continue
        clusters = clusters_of(arms[0][0].records.only(qids))
        method = Method(clusters=clusters, margin=margin)
        untested[at] = compare_arms(arms[0], arms[at], metric, qids, method)
    if family is None:
        corrected = correct(list(untested.values()))
    else:
        corrected = family.beside(list(untested.values()))
    tests |= dict(zip(untested, corrected, strict=True))
    return [tests[at] for at in sorted(tests)]


def _compared(
    a: Arm, b: Arm, qids: Sequence[str], scores: Mapping[str, Comparison]
) -> RunComparison:
    clusters = clusters_of(a[0].records.only(qids))
    evidence = None
    if EVIDENCE not in scores and matrix((*a, *b), EVIDENCE, qids)[0]:
        evidence = compare_arms(a, b, EVIDENCE, qids, Method(clusters=clusters))
    right_a = mostly_right(a, qids)
    right_b = mostly_right(b, qids)
    noise = {}
    for name, c in scores.items():
        noise_of_metric = _noise(a, b, name, qids, c)
        if noise_of_metric is not None:
            noise[name] = noise_of_metric
    costs = {}
    for name, measure in MEASURES.items():
        costs[name] = cost_difference(a, b, qids, measure, clusters)
    return RunComparison(
        a[0],
        b[0],
        scores=scores,
        costs=costs,
        fixed=tuple(q for q in qids if q in right_b - right_a),
        broken=tuple(q for q in qids if q in right_a - right_b),
        evidence=evidence,
        arms=(a, b),
        noise=noise,
    )


def _noise(a: Arm, b: Arm, metric: str, qids: Sequence[str], c: Comparison) -> Noise | None:
    """What repeats tell of a difference; None without any, and where no interval can be given."""
    if c.estimate is None:
        return None
    sides = [np.array(list(side.values())).T for side in columns(a, b, metric, qids)]
    split = shares(sides[0], sides[1], c.estimate)
    if split is None:
        return None
    again = [spread_again(side) if len(side) > 1 else None for side in sides]
    return Noise(again[0], again[1], split)
