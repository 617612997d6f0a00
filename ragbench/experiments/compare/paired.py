"""Compares two runs question by question: scores with a verdict, cost and latency beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ragbench.experiments.compare.arms import (
    GroupDifference,
    cluster_of,
    clusters_of,
    compare_arms,
    gold_pids,
    group_differences,
    mostly_right,
    shared_questions,
)
from ragbench.experiments.runs import HEADLINE, Evaluation, failed
from ragbench.experiments.score import scored_records
from ragbench.metrics import Comparison, Grouping, Method, compare_scores, correct, get_metric
from ragbench.record import Record


@dataclass(frozen=True)
class RunComparison:
    """Run B against run A over the same questions; every difference is B minus A.

    `scores` has one comparison per metric, over the questions that have it in both runs, p-values
    corrected over the family (Holm); `costs` has one per measure of cost, with an interval and no
    verdict; `groups` are the breakdowns, where they were asked for. `fixed` and `broken` are the
    questions that B alone, or A alone, got exactly right.
    """

    a: Evaluation
    b: Evaluation
    scores: Mapping[str, Comparison]
    costs: Mapping[str, Comparison | None]
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    groups: Sequence[GroupDifference] = ()


def compare(
    a: Evaluation,
    b: Evaluation,
    *,
    metrics: Sequence[str] = HEADLINE,
    common: bool = False,
    by: Mapping[str, Grouping] | None = None,
    method: Method | None = None,
) -> RunComparison:
    """Compare run `b` with run `a`; `common` leaves out questions that only one of them has.

    `by` are the breakdowns wanted. Questions count by their clusters.

    Raises:
        CompareError: the runs are over other data or, without `common`, other questions; or they
            were judged by different models, or share no question with a metric.
    """
    qids = shared_questions(a, b, common=common)
    wanted = [get_metric(name).score for name in ("em", *metrics)]
    for run in (a, b):
        run.records.only(qids).learn([*wanted, failed, cluster_of, gold_pids, *MEASURES.values()])
    method = replace(method or Method(), clusters=clusters_of(a.records.only(qids)))
    scores = [compare_arms([a], [b], name, qids, method) for name in metrics]
    right_a, right_b = mostly_right([a], qids), mostly_right([b], qids)
    return RunComparison(
        a,
        b,
        scores=dict(zip(metrics, correct(scores), strict=True)),
        costs={name: _cost(a, b, qids, measure) for name, measure in MEASURES.items()},
        fixed=tuple(q for q in qids if q in right_b - right_a),
        broken=tuple(q for q in qids if q in right_a - right_b),
        groups=group_differences([a], [b], by or {}, metrics, qids, method),
    )


def with_scores(run: Evaluation) -> Evaluation:
    """`run` with what it was scored by merged into its records: verdicts and attributions.

    Raises:
        RunError: its records cannot be read.
    """
    return replace(run, records=scored_records(run.folder))


def _calls(record: Record) -> float:
    return float(record.ledger.as_if.calls)


def _tokens(record: Record) -> float:
    return float(record.ledger.as_if.tokens)


def _usd(record: Record) -> float | None:
    return record.ledger.as_if.cost_usd


#: What a question costs, as if nothing had been cached.
MEASURES: Mapping[str, Callable[[Record], float | None]] = {
    "calls": _calls,
    "tokens": _tokens,
    "cost $": _usd,
    "latency s": lambda record: float(record.latency_s),
}


def _cost(
    a: Evaluation, b: Evaluation, qids: Sequence[str], measure: Callable[[Record], float | None]
) -> Comparison | None:
    """The comparison of one measure; None where it is unknown for a question."""
    sides = [run.records.only(qids).column(measure) for run in (a, b)]
    known = [{q: value for q, value in side.items() if value is not None} for side in sides]
    if any(len(side) < len(qids) for side in known):
        return None
    return compare_scores(*known, higher_is_better=False, score_range=None)
