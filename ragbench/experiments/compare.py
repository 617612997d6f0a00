"""Compares two runs question by question: scores with a verdict, cost and latency beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragbench.errors import CompareError
from ragbench.experiments.evaluate import Evaluation
from ragbench.experiments.groups import members
from ragbench.experiments.records import Record
from ragbench.experiments.score import judge_of, scored_records
from ragbench.experiments.summary import HEADLINE
from ragbench.ledger import Ledger
from ragbench.metrics import get_metric
from ragbench.metrics.aggregate import Grouping
from ragbench.metrics.base import failed
from ragbench.metrics.stats import Comparison, Interval, compare_scores, correct


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


@dataclass(frozen=True)
class GroupDifference:
    """One metric over one group of the questions; its interval is not corrected for their number.

    `interval` is None where the group is too small for one.
    """

    by: str
    group: str
    metric: str
    n: int
    mean_a: float
    mean_b: float
    interval: Interval | None


def compare(
    a: Evaluation,
    b: Evaluation,
    *,
    metrics: Sequence[str] = HEADLINE,
    margin: float | None = None,
    common: bool = False,
    seed: int = 0,
    by: Mapping[str, Grouping] | None = None,
) -> RunComparison:
    """Compare run `b` with run `a`; `common` leaves out questions that only one of them has.

    `by` are the breakdowns wanted.

    Raises:
        CompareError: the runs are over other data or, without `common`, other questions; or they
            were judged by different models, or share no question with a metric.
    """
    qids = shared_questions(a, b, common=common)
    columns = {name: _paired(a, b, name, qids) for name in metrics}
    scores = {
        name: compare_scores(
            *sides, seed=seed, margin=margin,
            higher_is_better=get_metric(name).higher_is_better,
            score_range=get_metric(name).score_range,
        )
        for name, sides in columns.items()
    }  # fmt: skip
    corrected = correct(list(scores.values()))
    costs = {name: _cost(a, b, qids, measure, seed) for name, measure in MEASURES.items()}
    right_a, right_b = ({q for q in qids if scores_of(run, "em", [q])[q] == 1} for run in (a, b))
    return RunComparison(
        a,
        b,
        dict(zip(scores, corrected, strict=True)),
        costs,
        fixed=tuple(q for q in qids if q in right_b - right_a),
        broken=tuple(q for q in qids if q in right_a - right_b),
        groups=_groups([a.records[qid] for qid in qids], by or {}, columns, seed),
    )


Columns = tuple[dict[str, float], dict[str, float]]


def _groups(
    records: Sequence[Record],
    by: Mapping[str, Grouping],
    columns: Mapping[str, Columns],
    seed: int,
) -> list[GroupDifference]:
    rows = []
    for name, group, some in members(records, by):
        for metric, (a, b) in columns.items():
            qids = [record["qid"] for record in some if record["qid"] in a]
            if qids:
                bounds = get_metric(metric).score_range
                sides = ({q: side[q] for q in qids} for side in (a, b))
                one = compare_scores(*sides, seed=seed, score_range=bounds)
                rows.append(
                    GroupDifference(
                        name, group, metric, len(qids), one.mean_a, one.mean_b, one.interval
                    )
                )
    return rows


def _paired(a: Evaluation, b: Evaluation, metric: str, qids: Sequence[str]) -> Columns:
    """The scores of both runs over the questions that have one in both, such as a verdict.

    Raises:
        CompareError: there is none, or the scores are of different judges.
    """
    said_a, said_b = (judge_of(run.folder, metric) for run in (a, b))
    if said_a and said_b and said_a != said_b:
        raise CompareError(
            f"{metric} of A is by {said_a}, of B by {said_b}; score one again with the other's LM"
        )
    score = get_metric(metric).score
    found = {qid: (score(a.records[qid]), score(b.records[qid])) for qid in qids}
    both = {q: pair for q, pair in found.items() if None not in pair}
    answered = [q for q in both if not failed(a.records[q]) or not failed(b.records[q])]
    if not answered:
        raise CompareError(
            f"{metric}: no question has it in both runs; `ragbench score` fills what a judge or an "
            "attribution gives, else choose another --metric"
        )
    left, right = ({q: float(pair[i] or 0.0) for q, pair in both.items()} for i in (0, 1))
    return left, right


def with_scores(run: Evaluation) -> Evaluation:
    """`run` with what it was scored by merged into its records: verdicts and attributions.

    Raises:
        RunError: its records cannot be read.
    """
    return replace(run, records={str(r["qid"]): r for r in scored_records(run.folder)})


def shared_questions(a: Evaluation, b: Evaluation, *, common: bool = False) -> list[str]:
    """Ids of the questions that both runs have; all of both, unless `common`.

    Raises:
        CompareError: the runs are over other data, or other questions.
    """
    for key in ("name", "digest"):
        theirs, ours = a.card["data"].get(key), b.card["data"].get(key)
        if theirs != ours:
            raise CompareError(
                f"the runs are over different data: {key} {theirs!r} and {ours!r}; "
                "run both on the same data set, setting and seed"
            )
    shared = [qid for qid in a.records if qid in b.records]
    only_a, only_b = len(a.records) - len(shared), len(b.records) - len(shared)
    if (only_a or only_b) and not common:
        raise CompareError(
            f"the runs are over different questions: {only_a} only in {a.folder}, {only_b} only in "
            f"{b.folder}; finish both with one limit, or give --common to compare the shared ones"
        )
    if not shared:
        raise CompareError("the runs share no question; run `ragbench eval` on the same data first")
    return shared


def scores_of(run: Evaluation, metric: str, qids: Sequence[str]) -> dict[str, float]:
    """The scores of `run` by question id.

    Raises:
        CompareError: the metric is not defined for all of `qids`.
    """
    chosen = get_metric(metric)
    found = {qid: chosen.score(run.records[qid]) for qid in qids}
    missing = sum(score is None for score in found.values())
    if missing:
        raise CompareError(
            f"{metric} is not defined for {missing} of {len(qids)} questions of {run.folder}; "
            "choose another --metric"
        )
    return {qid: float(score) for qid, score in found.items() if score is not None}


def _calls(record: Record) -> float:
    return float(Ledger.from_dict(record["ledger"]).as_if.calls)


def _tokens(record: Record) -> float:
    return float(Ledger.from_dict(record["ledger"]).as_if.tokens)


def _usd(record: Record) -> float | None:
    return Ledger.from_dict(record["ledger"]).as_if.cost_usd


#: What a question costs, as if nothing had been cached.
MEASURES: Mapping[str, Callable[[Record], float | None]] = {
    "calls": _calls,
    "tokens": _tokens,
    "cost $": _usd,
    "latency s": lambda record: float(record["latency_s"]),
}


def _cost(
    a: Evaluation,
    b: Evaluation,
    qids: Sequence[str],
    measure: Callable[[Record], float | None],
    seed: int,
) -> Comparison | None:
    """The comparison of one measure; None where it is unknown for a question."""
    sides: list[dict[str, Any]] = [
        {qid: measure(run.records[qid]) for qid in qids} for run in (a, b)
    ]
    if any(value is None for side in sides for value in side.values()):
        return None
    return compare_scores(*sides, seed=seed, higher_is_better=False, score_range=None)
