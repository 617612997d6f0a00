"""Runs against each other, question by question: scores with a verdict, and what a question costs.

An arm is one run, or one run for each compile seed; every difference is B minus A.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ragbench.errors import CompareError
from ragbench.experiments.compare.ceilings import most_of_question
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import EVIDENCE, HEADLINE, Evaluation, failed
from ragbench.experiments.score import judge_of
from ragbench.metrics import (
    Comparison,
    Method,
    Shares,
    compare_scores,
    correct,
    differ_as_wholes,
    get_metric,
    shares,
    spread_again,
    with_extremes,
)
from ragbench.record import Record

#: The runs of one arm, over the same questions.
Arm = Sequence[Evaluation]
#: Question id -> the score of each run of an arm.
Column = dict[str, list[float]]
#: What a gate refuses: a new run that is worse, or one that is not better.
Gate = Literal["worse", "not-better"]
#: What a question costs, as if nothing had been cached.
MEASURES: Mapping[str, Callable[[Record], float | None]] = {
    "calls": get_metric("calls").score,
    "tokens": get_metric("tokens").score,
    "cost $": get_metric("cost_usd").score,
    "latency s": get_metric("latency_s").score,
}


def compare_arms(
    a: Arm, b: Arm, metric: str, qids: Sequence[str], method: Method | None = None
) -> Comparison:
    """Arm `b` against arm `a` over `qids`, those of which that have the metric in some run.

    Where some runs alone have a score of a question, no verdict is given but what holds both with
    the worst and with the best score for the missing ones.
    """
    kind = get_metric(metric)

    def compared(before: Column, after: Column) -> Comparison:
        return compare_scores(
            before, after, higher_is_better=kind.higher_is_better, score_range=kind.score_range,
            method=method,
        )  # fmt: skip

    before, after = columns(a, b, metric, qids)
    complete = compared(before, after)
    missing = _partly_scored(a, b, metric, qids)
    if not missing:
        return complete
    if kind.score_range is None:
        return with_extremes(complete, [replace(complete, interval=None)], len(missing))
    extremes = []
    for ends in (kind.score_range, kind.score_range[::-1]):
        filled_before = dict(before)
        filled_after = dict(after)
        for qid, row in missing.items():
            filled_before[qid] = [ends[0] if x is None else x for x in row[: len(a)]]
            filled_after[qid] = [ends[1] if x is None else x for x in row[len(a) :]]
        extremes.append(compared(filled_before, filled_after))
    return with_extremes(complete, extremes, len(missing))


def _partly_scored(
    a: Arm, b: Arm, metric: str, qids: Sequence[str]
) -> dict[str, list[float | None]]:
    """The questions of `qids` that some of the runs have a score of and some have not."""
    sides = [run.records.only(qids).column(get_metric(metric).score) for run in (*a, *b)]
    missing: dict[str, list[float | None]] = {}
    for qid in qids:
        row = [side[qid] for side in sides]
        if None in row and any(score is not None for score in row):
            missing[qid] = row
    return missing


def _have(metric: str, runs: Iterable[Evaluation], qids: Sequence[str]) -> bool:
    """Whether some question has `metric` in every one of `runs`."""
    scored = set(qids)
    for run in runs:
        column = run.records.only(qids).column(get_metric(metric).score)
        scored_here = set()
        for qid, score in column.items():
            if score is not None:
                scored_here.add(qid)
        scored &= scored_here
    return bool(scored)


def read_for(run: Evaluation, metrics: Iterable[str]) -> None:
    """Parse every record of `run` once, for its summary and for comparisons by `metrics`."""
    scores = [get_metric(name).score for name in metrics]
    run.read([*scores, question, *MEASURES.values()])


def columns(a: Arm, b: Arm, metric: str, qids: Sequence[str]) -> tuple[Column, Column]:
    """The scores of both arms over those of `qids` that have one in every run."""
    runs = [*a, *b]
    judges = set()
    for run in runs:
        judge = judge_of(run.folder, metric)
        if judge:
            judges.add(judge)
    if len(judges) > 1:
        raise CompareError(
            f"{metric} is by {' and by '.join(sorted(judges))}; score one again with the other's LM"
        )
    sides = [run.records.only(qids).column(get_metric(metric).score) for run in runs]
    complete = {}
    for qid in qids:
        row = _known_scores(sides, qid)
        if len(row) == len(runs):
            complete[qid] = row
    if all(all(run.records.only(complete).column(failed).values()) for run in runs):
        raise CompareError(
            f"{metric}: no question has it in every run; `ragbench score` fills what a judge or an "
            "attribution gives, else choose another metric"
        )
    n = len(a)
    return {q: row[:n] for q, row in complete.items()}, {q: row[n:] for q, row in complete.items()}


def _known_scores(sides: Iterable[Mapping[str, float | None]], qid: str) -> list[float]:
    """The scores of one question in those runs that have one."""
    scores = []
    for side in sides:
        score = side[qid]
        if score is not None:
            scores.append(score)
    return scores


def cost_difference(
    a: Arm, b: Arm, qids: Sequence[str], measure: Callable[[Record], float | None],
    clusters: Mapping[str, Hashable] | None = None,
) -> Comparison | None:  # fmt: skip
    """The comparison of one measure of arm `b` with arm `a`; None where it is not known of all.

    Its interval reaches to what questions may take by their own limits (`ceilings`); it has none
    where nothing limits them.
    """
    sides = []
    ceilings: list[float | None] = []
    for arm in (a, b):
        rows: dict[str, list[float]] = {qid: [] for qid in qids}
        for run in arm:
            records = run.records.only(qids)
            amounts = {}
            for q, v in records.column(measure).items():
                if v is not None:
                    amounts[q] = v
            if len(amounts) < len(rows):
                return None
            for qid, amount in amounts.items():
                rows[qid].append(amount)
            calls = records.column(MEASURES["calls"])
            ceilings.append(most_of_question(run.card, calls, amounts))
        sides.append(rows)
    limits = []
    for ceiling in ceilings:
        if ceiling is not None:
            limits.append(ceiling)
    ends = (0.0, max(limits)) if limits else None
    method = Method(clusters=clusters or {})
    compared = compare_scores(*sides, higher_is_better=False, score_range=ends, method=method)
    if len(limits) < len(ceilings):
        return replace(compared, interval=None, p=1.0)
    return compared


def shared_questions(a: Evaluation, b: Evaluation, *, common: bool = False) -> list[str]:
    """Ids of the questions that both runs have; all of both, unless `common`."""
    if origin(a) != origin(b):  # a file may have another name
        if a.card.data.name != b.card.data.name:
            key = "name"
        else:
            key = "digest"
        length = None if key == "name" else 16
        data_a, data_b = (getattr(run.card.data, key)[:length] for run in (a, b))
        raise CompareError(
            f"the runs are over different data: {key} {data_a!r} and {data_b!r}; run both on "
            "the same data set, corpus, setting and seed"
        )
    shared = []
    for qid in a.records:
        if qid in b.records:
            shared.append(qid)
    only_a = len(a.records) - len(shared)
    only_b = len(b.records) - len(shared)
    if (only_a or only_b) and not common:
        raise CompareError(
            f"the runs are over different questions: {only_a} only in {a.folder}, {only_b} only in "
            f"{b.folder}; finish both with one limit, or give --common to compare the shared ones"
        )
    if not shared:
        raise CompareError("the runs share no question; run `ragbench eval` on the same data first")
    return shared


def origin(run: Evaluation) -> str:
    """The digest of the data; of a twin, whose questions have the same ids, of the original."""
    return str(run.card.data_card.get("twin_of") or run.card.data.digest)


def mostly_right(arm: Arm, qids: Iterable[str]) -> set[str]:
    """The questions of `qids` that more than half of the runs answered exactly right."""
    columns = [run.records.only(qids).column(get_metric("em").score) for run in arm]
    return {qid for qid in qids if sum(column[qid] == 1 for column in columns) > len(arm) / 2}


def question(record: Record) -> str:
    """The question that was asked."""
    return record.question


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
    method: Method | None = None,
) -> list[RunComparison]:
    """Compare each further run with the first, all p-values corrected as one family.

    A run that was asked several times is given by its repeats. `common` leaves out questions that
    only one of two runs has. Questions count by their clusters.

    Raises:
        CompareError: they are over other data or questions, or were judged by different models.
    """
    if len(runs) < 2:
        raise CompareError("give two runs or more; the first is the baseline")
    arms = [[run] if isinstance(run, Evaluation) else run for run in runs]
    method = method or Method()
    for arm in arms:
        for run in arm:
            read_for(run, metrics)
    pairs = [_compared(arms[0], arm, metrics, common, method) for arm in arms[1:]]
    comparisons: list[Comparison] = []
    for pair in pairs:
        comparisons.extend(pair.scores.values())
    family = iter(correct(comparisons))
    return [replace(pair, scores={name: next(family) for name in pair.scores}) for pair in pairs]


def _compared(
    a: Arm, b: Arm, metrics: Sequence[str], common: bool, method: Method
) -> RunComparison:
    shared: set[str] | None = None
    for run in (*a[1:], *b):
        qids = shared_questions(a[0], run, common=common)
        shared = set(qids) if shared is None else shared & set(qids)
    qids = sorted(shared or ())
    clusters = clusters_of(a[0].records.only(qids))
    method = replace(method, clusters=clusters)
    with_evidence = EVIDENCE not in metrics and _have(EVIDENCE, (*a, *b), qids)
    right_a = mostly_right(a, qids)
    right_b = mostly_right(b, qids)
    scores = {}
    noise = {}
    for name in metrics:
        # Repeats are nested in questions, unless they differ as wholes.
        level = any(_differs(arm, name, qids, clusters) for arm in (a, b))
        scores[name] = compare_arms(a, b, name, qids, replace(method, random_seeds=level))
        noise_of_metric = _noise(a, b, name, qids, scores[name])
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
        evidence=compare_arms(a, b, EVIDENCE, qids, method) if with_evidence else None,
        arms=(a, b),
        noise=noise,
    )


def matrix(arm: Arm, metric: str, qids: Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
    """The questions of `qids` that every run has a score of, and those `(runs, questions)`."""
    sides = [run.records.only(qids).column(get_metric(metric).score) for run in arm]
    scored = []
    rows = []
    for qid in qids:
        row = _known_scores(sides, qid)
        if len(row) == len(sides):
            scored.append(qid)
            rows.append(row)
    return scored, np.array(rows, dtype=np.float64).reshape(len(rows), len(arm)).T


def _differs(arm: Arm, metric: str, qids: Sequence[str], clusters: Mapping[str, Hashable]) -> bool:
    scored, scores = matrix(arm, metric, qids)
    groups = [clusters[qid] for qid in scored] if clusters else None
    return differ_as_wholes(scores, groups)


def _noise(a: Arm, b: Arm, metric: str, qids: Sequence[str], c: Comparison) -> Noise | None:
    """What repeats tell of a difference; None without any, and where no interval can be given."""
    before, after = columns(a, b, metric, qids)
    before_rows = np.array(list(before.values())).T
    after_rows = np.array(list(after.values())).T
    if c.estimate is None:
        return None
    split = shares(before_rows, after_rows, c.estimate)
    if split is None:
        return None
    again = [spread_again(side) if len(side) > 1 else None for side in (before_rows, after_rows)]
    return Noise(again[0], again[1], split)
