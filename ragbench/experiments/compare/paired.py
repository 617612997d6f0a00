"""Runs against each other, question by question: scores with a verdict, and what a question costs.

An arm is one run, or one run for each compile seed; every difference is B minus A.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ragbench.errors import CompareError
from ragbench.experiments.compare.ceilings import most_of_question
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import EVIDENCE, HEADLINE, Evaluation, failed
from ragbench.experiments.score import judge_of
from ragbench.metrics import Comparison, Method, compare_scores, correct, get_metric, with_extremes
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
        filled_before, filled_after = dict(before), dict(after)
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
    known = set(qids)
    for run in runs:
        column = run.records.only(qids).column(get_metric(metric).score)
        known &= {qid for qid, score in column.items() if score is not None}
    return bool(known)


def read_for(run: Evaluation, metrics: Iterable[str]) -> None:
    """Parse every record of `run` once, for its summary and for comparisons by `metrics`."""
    scores = [get_metric(name).score for name in metrics]
    run.read([*scores, question, *MEASURES.values()])


def columns(a: Arm, b: Arm, metric: str, qids: Sequence[str]) -> tuple[Column, Column]:
    """The scores of both arms over those of `qids` that have one in every run."""
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
            amounts = {q: v for q, v in records.column(measure).items() if v is not None}
            if len(amounts) < len(rows):
                return None
            for qid, amount in amounts.items():
                rows[qid].append(amount)
            calls = records.column(MEASURES["calls"])
            ceilings.append(most_of_question(run.card, calls, amounts))
        sides.append(rows)
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    ends = (0.0, max(known)) if known else None
    method = Method(clusters=clusters or {})
    compared = compare_scores(*sides, higher_is_better=False, score_range=ends, method=method)
    if len(known) < len(ceilings):
        return replace(compared, interval=None, p=1.0)
    return compared


def shared_questions(a: Evaluation, b: Evaluation, *, common: bool = False) -> list[str]:
    """Ids of the questions that both runs have; all of both, unless `common`."""
    if origin(a) != origin(b):  # a file may have another name
        key = "name" if a.card.data.name != b.card.data.name else "digest"
        length = None if key == "name" else 16
        theirs, ours = (getattr(run.card.data, key)[:length] for run in (a, b))
        raise CompareError(
            f"the runs are over different data: {key} {theirs!r} and {ours!r}; run both on "
            "the same data set, corpus, setting and seed"
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
class RunComparison:
    """Run B against run A over the same questions.

    `scores` has one comparison per metric, over the questions that have it in both runs, p-values
    corrected over the family (Holm); `costs` has one per measure of cost, with an interval and no
    verdict; `evidence` is that of gold passages found, None where none are known. `fixed` and
    `broken` are the questions that B alone, or A alone, got exactly right.
    """

    a: Evaluation
    b: Evaluation
    scores: Mapping[str, Comparison]
    costs: Mapping[str, Comparison | None]
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
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


def compare_all(
    runs: Sequence[Evaluation],
    *,
    metrics: Sequence[str] = HEADLINE,
    common: bool = False,
    method: Method | None = None,
) -> list[RunComparison]:
    """Compare each further run with the first, all p-values corrected as one family.

    `common` leaves out questions that only one of two runs has. Questions count by their clusters.
    CompareError where they are over other data or questions, or were judged by different models.
    """
    if len(runs) < 2:
        raise CompareError("give two runs or more; the first is the baseline")
    first = runs[0]
    method = method or Method()
    for run in runs:
        read_for(run, metrics)
    pairs = [_compared(first, run, metrics, common, method) for run in runs[1:]]
    family = iter(correct([c for pair in pairs for c in pair.scores.values()]))
    return [replace(pair, scores={name: next(family) for name in pair.scores}) for pair in pairs]


def _compared(
    a: Evaluation, b: Evaluation, metrics: Sequence[str], common: bool, method: Method
) -> RunComparison:
    qids = shared_questions(a, b, common=common)
    method = replace(method, clusters=clusters_of(a.records.only(qids)))
    known = EVIDENCE not in metrics and _have(EVIDENCE, (a, b), qids)
    right_a, right_b = mostly_right([a], qids), mostly_right([b], qids)
    return RunComparison(
        a,
        b,
        scores={name: compare_arms([a], [b], name, qids, method) for name in metrics},
        costs={
            name: cost_difference([a], [b], qids, measure, method.clusters)
            for name, measure in MEASURES.items()
        },
        fixed=tuple(q for q in qids if q in right_b - right_a),
        broken=tuple(q for q in qids if q in right_a - right_b),
        evidence=compare_arms([a], [b], EVIDENCE, qids, method) if known else None,
    )
