"""Arms of a comparison, question by question: one run each, or one per compile seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ragbench.data import find_clusters
from ragbench.errors import CompareError
from ragbench.experiments.runs import Evaluation, failed, members
from ragbench.experiments.score.stored import judge_of
from ragbench.experiments.store import StoredRecords
from ragbench.metrics import (
    Comparison,
    Grouping,
    Interval,
    Method,
    cluster_of,
    compare_scores,
    get_metric,
    usable_clusters,
)
from ragbench.record import Record

#: The runs of one arm, over the same questions.
Arm = Sequence[Evaluation]
#: Question id -> the score of each run of an arm.
Column = dict[str, list[float]]


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


def compare_arms(
    a: Arm, b: Arm, metric: str, qids: Sequence[str], method: Method | None = None
) -> Comparison:
    """Arm `b` against arm `a` over those of `qids` that have the metric in every run.

    Raises:
        CompareError: as for `columns`.
    """
    return _compared(columns(a, b, metric, qids), metric, method)


def group_differences(
    a: Arm, b: Arm, by: Mapping[str, Grouping], metrics: Sequence[str], qids: Sequence[str],
    method: Method | None = None,
) -> list[GroupDifference]:  # fmt: skip
    """The difference of the arms on each metric, over each group of the questions by each of `by`.

    Raises:
        CompareError: as for `columns`.
    """
    sides = {metric: columns(a, b, metric, qids) for metric in metrics} if by else {}
    rows = []
    for name, group, records in members(a[0].records.only(qids), by):
        for metric, both in sides.items():
            left, right = ({q: side[q] for q in records if q in side} for side in both)
            if left:
                c = _compared((left, right), metric, method)
                means = (c.n, c.mean_a, c.mean_b, c.interval)
                rows.append(GroupDifference(name, group, metric, *means))
    return rows


def columns(a: Arm, b: Arm, metric: str, qids: Sequence[str]) -> tuple[Column, Column]:
    """The scores of both arms over those of `qids` that have one in every run.

    Raises:
        CompareError: no answered question has it, or the scores are of different judges.
    """
    runs = [*a, *b]
    judges = {judge for run in runs if (judge := judge_of(run.folder, metric))}
    if len(judges) > 1:
        raise CompareError(
            f"{metric} is by {' and by '.join(sorted(judges))}; score one again with the other's LM"
        )
    sides = [run.records.only(qids).column(get_metric(metric).score) for run in runs]
    known = {q: [s for side in sides if (s := side[q]) is not None] for q in qids}
    whole = {q: row for q, row in known.items() if len(row) == len(runs)}
    if all(all(run.records.only(whole).column(failed).values()) for run in runs):
        raise CompareError(
            f"{metric}: no question has it in every run; `ragbench score` fills what a judge or an "
            "attribution gives, else choose another metric"
        )
    n = len(a)
    return {q: row[:n] for q, row in whole.items()}, {q: row[n:] for q, row in whole.items()}


def shared_questions(a: Evaluation, b: Evaluation, *, common: bool = False) -> list[str]:
    """Ids of the questions that both runs have; all of both, unless `common`.

    Raises:
        CompareError: the runs are over other data, or other questions.
    """
    for key in ("name", "digest"):
        theirs, ours = getattr(a.card.data, key), getattr(b.card.data, key)
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


def mostly_right(arm: Arm, qids: Iterable[str]) -> set[str]:
    """The questions of `qids` that more than half of the runs answered exactly right."""
    columns = [run.records.only(qids).column(get_metric("em").score) for run in arm]
    return {qid for qid in qids if sum(column[qid] == 1 for column in columns) > len(arm) / 2}


def gold_pids(record: Record) -> list[str]:
    """Ids of the passages with the supporting facts."""
    return record.gold_pids


def clusters_of(records: StoredRecords) -> dict[str, str]:
    """The cluster of each question; empty where there is one for each.

    As the data set names them; where its records do not say, by shared gold passages. Where all
    share one, no interval can be given.
    """
    qids = list(records)
    names = usable_clusters(list(records.column(cluster_of).values()))
    if names is None:
        roots = find_clusters(list(records.column(gold_pids).values()))
        names = [qids[at] for at in roots]
    return {} if len(set(names)) == len(names) else dict(zip(qids, names, strict=True))


def _compared(sides: tuple[Column, Column], metric: str, method: Method | None) -> Comparison:
    kind = get_metric(metric)
    return compare_scores(
        *sides, higher_is_better=kind.higher_is_better, score_range=kind.score_range, method=method
    )
