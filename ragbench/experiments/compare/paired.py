"""Compares runs question by question: scores with a verdict, cost and latency beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ragbench.errors import CompareError
from ragbench.experiments.compare.arms import (
    GroupDifference,
    clusters_of,
    compare_arms,
    gold_pids,
    group_differences,
    mostly_right,
    shared_questions,
)
from ragbench.experiments.compare.spending import COLUMN_OF, MEASURES, cost_difference
from ragbench.experiments.runs import HEADLINE, Evaluation, failed
from ragbench.metrics import Comparison, Grouping, Method, cluster_of, correct, get_metric

#: What a gate refuses: a new run that is worse, or one that is not better.
Gate = Literal["worse", "not-better"]
#: The share of questions whose gold passages were all found; it stands beside the scores.
EVIDENCE = "all_recall"


@dataclass(frozen=True)
class RunComparison:
    """Run B against run A over the same questions; every difference is B minus A.

    `scores` has one comparison per metric, over the questions that have it in both runs, p-values
    corrected over the family (Holm); `costs` has one per measure of cost, with an interval and no
    verdict; `evidence` is that of gold passages found, None where none are known; `groups` are the
    breakdowns, where they were asked for. `fixed` and `broken` are the questions that B alone, or A
    alone, got exactly right.
    """

    a: Evaluation
    b: Evaluation
    scores: Mapping[str, Comparison]
    costs: Mapping[str, Comparison | None]
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    groups: Sequence[GroupDifference] = ()
    evidence: Comparison | None = None

    def refused(self, gate: Gate) -> str:
        """Why `gate` refuses run B, in one line; empty where it passes.

        A difference that is shown to be within the margin counts as none.
        """
        for name, c in self.scores.items():
            shown = c.verdict.partition(",")[0] if "by less than" not in c.verdict else "no more"
            if (shown == "worse") if gate == "worse" else (shown != "better"):
                ends = f" [{c.interval.low:+.3f}, {c.interval.high:+.3f}]" if c.interval else ""
                return (
                    f"gate {gate}: {name} of {self.b.folder} against {self.a.folder}, "
                    f"{c.difference:+.3f}{ends}: {c.verdict}"
                )
        return ""


def compare(
    a: Evaluation,
    b: Evaluation,
    *,
    metrics: Sequence[str] = HEADLINE,
    common: bool = False,
    by: Mapping[str, Grouping] | None = None,
    method: Method | None = None,
) -> RunComparison:
    """Compare run `b` with run `a`; see `compare_all`."""
    return compare_all([a, b], metrics=metrics, common=common, by=by, method=method)[0]


def compare_all(
    runs: Sequence[Evaluation],
    *,
    metrics: Sequence[str] = HEADLINE,
    common: bool = False,
    by: Mapping[str, Grouping] | None = None,
    method: Method | None = None,
) -> list[RunComparison]:
    """Compare each further run with the first, all p-values corrected as one family.

    `common` leaves out questions that only one of two runs has; `by` are the breakdowns wanted.
    Questions count by their clusters.

    Raises:
        CompareError: there are fewer than two runs; they are over other data or, without `common`,
            other questions; they were judged by different models, or share no question with a
            metric.
    """
    if len(runs) < 2:
        raise CompareError("give two runs or more; the first is the baseline")
    pairs = [_compared(runs[0], run, metrics, common, by or {}, method or Method())
             for run in runs[1:]]  # fmt: skip
    family = iter(correct([c for pair in pairs for c in pair.scores.values()]))
    return [replace(pair, scores={name: next(family) for name in pair.scores}) for pair in pairs]


def _compared(
    a: Evaluation, b: Evaluation, metrics: Sequence[str], common: bool,
    by: Mapping[str, Grouping], method: Method,
) -> RunComparison:  # fmt: skip
    """The comparison of two runs, p-values not yet corrected."""
    qids = shared_questions(a, b, common=common)
    wanted = [get_metric(name).score for name in ("em", EVIDENCE, *metrics)]
    for run in (a, b):
        run.records.only(qids).compute([*wanted, failed, cluster_of, gold_pids, *MEASURES.values()])
    method = replace(method, clusters=clusters_of(a.records.only(qids)))
    found = a.records.only(qids).column(get_metric(EVIDENCE).score).values()
    known = EVIDENCE not in metrics and any(share is not None for share in found)
    right_a, right_b = mostly_right([a], qids), mostly_right([b], qids)
    return RunComparison(
        a,
        b,
        scores={name: compare_arms([a], [b], name, qids, method) for name in metrics},
        costs={
            name: cost_difference([a], [b], qids, measure, method.clusters)
            for name, measure in MEASURES.items()
            if COLUMN_OF[name] not in (*a.card.unknown, *b.card.unknown)
        },
        fixed=tuple(q for q in qids if q in right_b - right_a),
        broken=tuple(q for q in qids if q in right_a - right_b),
        groups=group_differences([a], [b], by, metrics, qids, method),
        evidence=compare_arms([a], [b], EVIDENCE, qids, method) if known else None,
    )
