"""Compares two runs question by question: scores with a verdict, cost and latency beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragbench.errors import CompareError
from ragbench.experiments.evaluate import Evaluation
from ragbench.experiments.records import Record
from ragbench.experiments.summary import HEADLINE
from ragbench.ledger import Ledger
from ragbench.metrics import get_metric
from ragbench.metrics.stats import Comparison, compare_scores, correct


@dataclass(frozen=True)
class RunComparison:
    """Run B against run A over the same questions; every difference is B minus A.

    `scores` has one comparison per metric, p-values corrected over the family (Holm); `costs` has
    one per measure of cost, with an interval and no verdict. `fixed` and `broken` are the questions
    that B alone, or A alone, got exactly right.
    """

    a: Evaluation
    b: Evaluation
    scores: Mapping[str, Comparison]
    costs: Mapping[str, Comparison | None]
    fixed: tuple[str, ...]
    broken: tuple[str, ...]


def compare(
    a: Evaluation,
    b: Evaluation,
    *,
    metrics: Sequence[str] = HEADLINE,
    margin: float | None = None,
    common: bool = False,
    seed: int = 0,
) -> RunComparison:
    """Compare run `b` with run `a`; `common` leaves out questions that only one of them has.

    Raises:
        CompareError: the runs are over other data or, without `common`, other questions.
    """
    qids = shared_questions(a, b, common=common)
    scores = {
        name: compare_scores(
            scores_of(a, name, qids), scores_of(b, name, qids), seed=seed, margin=margin,
            higher_is_better=get_metric(name).higher_is_better,
            score_range=get_metric(name).score_range,
        )
        for name in metrics
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
    )


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
