"""Runs against each other, question by question: scores with a verdict, and what a question costs.

An arm is one run, or the runs of one program or optimizer: compile seeds, and repeats of each. The
scores of a program are means over its repeats, unless those differ as wholes (`metrics.repeats`).
Every difference is B minus A.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragbench.errors import CompareError
from ragbench.experiments.compare.ceilings import most_of_question
from ragbench.experiments.runs.summary import Evaluation, failed, folder_of_repeats
from ragbench.experiments.score import judge_of
from ragbench.metrics import (
    LEAST_SEEDS,
    Comparison,
    Interval,
    Method,
    compare_scores,
    differ_as_wholes,
    estimate_difference,
    get_metric,
    with_extremes,
)
from ragbench.record import Record

Floats = NDArray[np.float64]
#: The runs of one arm, over the same questions.
Arm = Sequence[Evaluation]
#: Question id -> the score of each run of an arm.
Column = dict[str, list[float]]
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
    method = method or Method()

    def compared(before: Column, after: Column) -> Comparison:
        return compare_scores(
            _of_programs(a, before, method.clusters),
            _of_programs(b, after, method.clusters),
            higher_is_better=kind.higher_is_better,
            score_range=kind.score_range,
            method=method,
        )

    before, after = columns(a, b, metric, qids)
    complete = compared(before, after)
    missing = {}
    for qid, row in _scores((*a, *b), kind.score, qids).items():
        if qid not in before and any(score is not None for score in row):
            missing[qid] = row
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


def programs_of(arm: Arm, scores: Floats, clusters: Sequence[Hashable] | None) -> Floats:
    """The scores of each program of an arm `(programs, questions)`, of those of its runs.

    Runs in one folder of repeats are one program, and so are all of fewer than `LEAST_SEEDS`
    compiled ones. They are programs of their own where they differ as wholes.
    """
    alike = len({run.card.compiled for run in arm}) < LEAST_SEEDS
    groups: dict[Path | None, list[int]] = {}
    for at, run in enumerate(arm):
        place = None if alike else folder_of_repeats(run.folder)
        groups.setdefault(place, []).append(at)
    rows: list[Floats] = []
    for places in groups.values():
        repeats = scores[places]
        if differ_as_wholes(repeats, clusters):
            rows.extend(repeats)
        else:
            rows.append(repeats.mean(axis=0))
    return np.array(rows)


def _of_programs(arm: Arm, column: Column, clusters: Mapping[str, Hashable]) -> Column:
    """`column` with a score of each program of the arm in place of one of each run."""
    if len(arm) == 1:
        return column
    groups = [clusters.get(qid, (qid,)) for qid in column] if clusters else None
    scores = programs_of(arm, np.array(list(column.values())).T, groups)
    return {qid: scores[:, at].tolist() for at, qid in enumerate(column)}


def mean_of_arm(
    arm: Arm, metric: str, qids: Sequence[str], clusters: Mapping[str, Hashable]
) -> tuple[float, Interval | None] | None:
    """The mean of an arm over those of `qids` that all its runs have a score of; None for none.

    Its 95 % interval is that of questions by their clusters, and of programs where it has several.
    """
    scored, scores = matrix(arm, metric, qids)
    if not scored:
        return None
    groups = [clusters[qid] for qid in scored] if clusters else None
    rows = programs_of(arm, scores, groups)
    bounds = get_metric(metric).score_range
    estimate = estimate_difference(np.zeros((1, len(scored))), rows, bounds, clusters=groups)
    return float(scores.mean()), estimate.interval() if estimate else None


def _scores(
    runs: Arm, score: Callable[[Record], float | None], qids: Sequence[str]
) -> dict[str, list[float | None]]:
    """Question id -> its score in each of `runs`, None where it has none."""
    sides = [run.records.column(score) for run in runs]
    rows = {}
    for qid in qids:
        rows[qid] = [side[qid] for side in sides]
    return rows


def known_scores(runs: Arm, score: Callable[[Record], float | None], qids: Sequence[str]) -> Column:
    """The scores of those of `qids` that have one in every one of `runs`."""
    complete = {}
    for qid, row in _scores(runs, score, qids).items():
        scores = [score for score in row if score is not None]
        if len(scores) == len(row):
            complete[qid] = scores
    return complete


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
    before: Column = {}
    after: Column = {}
    for qid, row in known_scores(runs, get_metric(metric).score, qids).items():
        before[qid] = row[: len(a)]
        after[qid] = row[len(a) :]
    if all(map(_all_failed, runs, repeat(before))):
        raise CompareError(
            f"{metric}: no question has it in every run; `ragbench score` fills what a judge or an "
            "attribution gives, else choose another metric"
        )
    return before, after


def _all_failed(run: Evaluation, qids: Iterable[str]) -> bool:
    of_question = run.records.column(failed)
    return all(of_question[qid] for qid in qids)


def cost_difference(
    a: Arm, b: Arm, qids: Sequence[str], measure: Callable[[Record], float | None],
    clusters: Mapping[str, Hashable],
) -> Comparison | None:  # fmt: skip
    """The comparison of one measure of arm `b` with arm `a`; None where it is not known of all.

    Its interval reaches to what questions may take by their own limits (`ceilings`); it has none
    where nothing limits them.
    """
    sides = []
    ceilings = []
    for arm in (a, b):
        rows = known_scores(arm, measure, qids)
        if len(rows) < len(qids):
            return None
        for at, run in enumerate(arm):
            amounts = {qid: row[at] for qid, row in rows.items()}
            calls = run.records.column(MEASURES["calls"])
            ceilings.append(most_of_question(run.card, calls, amounts))
        sides.append(_of_programs(arm, rows, clusters))
    limits = [ceiling for ceiling in ceilings if ceiling is not None]
    limited = len(limits) == len(ceilings)
    ends = (0.0, max(limits)) if limited else None
    method = Method(clusters=clusters)
    compared = compare_scores(*sides, higher_is_better=False, score_range=ends, method=method)
    if limited:
        return compared
    return replace(compared, interval=None, p=1.0)


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
    rows = _scores(arm, get_metric("em").score, list(qids))
    return {qid for qid, row in rows.items() if row.count(1) > len(arm) / 2}


def question(record: Record) -> str:
    """The question that was asked."""
    return record.question


def matrix(arm: Arm, metric: str, qids: Sequence[str]) -> tuple[list[str], Floats]:
    """The questions of `qids` that every run has a score of, and those `(runs, questions)`."""
    rows = known_scores(arm, get_metric(metric).score, qids)
    return list(rows), np.array(list(rows.values())).reshape(len(rows), len(arm)).T
