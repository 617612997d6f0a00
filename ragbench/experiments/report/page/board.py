"""What a report shows of several runs, computed once from their records; drawing is elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from ragbench.experiments.records import StoredRecords
from ragbench.experiments.report.grid import Grid
from ragbench.experiments.report.questions import (
    Section,
    Titled,
    advice,
    amount,
    answers,
    mean_cell,
)
from ragbench.experiments.report.tables import label_runs
from ragbench.experiments.runs import Evaluation, groupings, members
from ragbench.metrics import Metric, cause_of, cluster_of, get_metric, union, usable_clusters
from ragbench.metrics.stats import Interval, mean_interval
from ragbench.record import Record

#: Metrics of spending that a chart may set accuracy against, and what their axes say.
SPENDING: Mapping[str, str] = {
    "cost_usd": "cost per question, $",
    "tokens": "tokens per question",
    "calls": "LM calls per question",
    "latency_s": "seconds per question",
    "retrieved_tokens": "retrieved tokens per question",
}
#: What becomes of a question's gold passages: shares of them, and at last the answer's score.
FUNNEL = ("in the corpus", "retrieved", "read", "answered")


@dataclass(frozen=True)
class Mean:
    """The mean of `n` values, with its 95 % interval where there are two or more of them."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Group:
    """One group of a breakdown of one run, such as the 12 bridge questions."""

    run: int
    breakdown: str
    name: str
    score: Mean


@dataclass(frozen=True)
class Pair:
    """Two runs over the same questions, the second a changed form of the first."""

    before: int
    after: int
    fixed: int
    broken: int
    groups: Sequence[tuple[str, Mean, Mean]]


@dataclass(frozen=True)
class RunView:
    """One run of a report: its records in the order of the report's questions, and its means."""

    number: int
    label: str
    evaluation: Evaluation
    records: StoredRecords
    metric: Metric

    @cached_property
    def scores(self) -> dict[str, float]:
        """The score of each question that has one, by id."""
        scores = {qid: self.metric.score(record) for qid, record in self.records.items()}
        return {qid: score for qid, score in scores.items() if score is not None}

    @cached_property
    def score(self) -> Mean | None:
        """The mean score."""
        return self.over(self.records.values())

    @cached_property
    def spending(self) -> dict[str, float | None]:
        """Mean spending per question, by metric; None where it is not known of a question."""
        means = {}
        for name in SPENDING:
            values = [get_metric(name).score(record) for record in self.records.values()]
            known = [value for value in values if value is not None]
            means[name] = sum(known) / len(known) if known and len(known) == len(values) else None
        return means

    @cached_property
    def causes(self) -> Counter[str]:
        """Wrong answers by their cause, such as `reading/partial`."""
        causes = (cause_of(record) for record in self.records.values())
        return Counter(cause.name for cause in causes if cause is not None)

    @cached_property
    def funnel(self) -> list[float | None] | None:
        """The shares of `FUNNEL`; None where no question's gold passages are known.

        A share is None where no question has it, such as what an answer was read from.
        """
        rows = [_stages(record, self.scores) for record in self.records.values()]
        known = [row for row in rows if row]
        if not known:
            return None
        columns = [[x for x in column if x is not None] for column in zip(*known, strict=True)]
        return [sum(column) / len(column) if column else None for column in columns]

    def over(self, records: Iterable[Record]) -> Mean | None:
        """The mean score of those of `records` that have one."""
        return mean_of(records, self.metric)

    def mean(self, name: str) -> Mean | None:
        """The mean of the metric called `name`, over the records that have it."""
        return mean_of(self.records.values(), get_metric(name))


@dataclass(frozen=True)
class Board:
    """The runs of a report over the questions that any of them asked."""

    metric: Metric
    runs: Sequence[RunView]
    questions: Sequence[Record] = field(default=())

    @cached_property
    def groups(self) -> list[Group]:
        """The score of every group of every breakdown that has more than one group, by run."""
        groups = []
        for run in self.runs:
            for breakdown, name, records in members(run.records, groupings()):
                mean = run.over(records.values())
                if mean:
                    groups.append(Group(run.number, breakdown, name, mean))
        many = Counter(breakdown for breakdown, _ in {(g.breakdown, g.name) for g in groups})
        return [group for group in groups if many[group.breakdown] > 1]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Runs that differ in being compiled alone: zero-shot first, compiled second."""
        pairs = []
        for a, b in combinations(self.runs, 2):
            if _key(a) == _key(b) and _compiled(a) != _compiled(b):
                before, after = (b, a) if _compiled(a) else (a, b)
                pairs.append(self._pair(before, after))
        return pairs

    @property
    def uneven(self) -> bool:
        """Whether a run has not asked all of the questions."""
        return any(len(run.records) < len(self.questions) for run in self.runs)

    @cached_property
    def leaderboard(self) -> Titled:
        """Every run with its means and its spending, as a table."""
        rows = []
        for run in self.runs:
            failed = sum(run.records.column(lambda record: record.failed).values())
            means = [_cell(mean) for mean in (run.score, run.mean("em"))]
            rows.append(
                [run.label, str(len(run.records)), str(failed),
                 *means, *(amount(run.spending[name], name) for name in SPENDING)]
            )  # fmt: skip
        columns = ("run", "n", "failed", self.metric.name, "em", *SPENDING)
        return Titled("leaderboard", "Leaderboard", Grid(columns, rows, frozenset({"run"})))

    @cached_property
    def measured(self) -> list[Section]:
        """The questions of a study that the runs say something to, but for the advice."""
        return answers(self._evaluations, self._labels, self.metric)

    @cached_property
    def sections(self) -> list[Section]:
        """The questions of a study that the runs say something to; the advice takes seconds."""
        advised = advice(self._evaluations, self._labels, self.metric)
        return [*self.measured, *([advised] if advised else [])]

    @property
    def _evaluations(self) -> list[Evaluation]:
        return [run.evaluation for run in self.runs]

    @property
    def _labels(self) -> list[str]:
        return [run.label for run in self.runs]

    def dominated(self, spending: str) -> set[int]:
        """Numbers of the runs that another beats in the mean score without spending more."""
        points = [
            (run.number, run.score.mean, cost)
            for run in self.runs
            if run.score and (cost := run.spending[spending]) is not None
        ]
        return {
            n
            for n, score, cost in points
            if any(
                s >= score and c <= cost and (s, c) != (score, cost) for m, s, c in points if m != n
            )
        }

    def _pair(self, before: RunView, after: RunView) -> Pair:
        shared = [qid for qid in before.scores if qid in after.scores]
        fixed = sum(after.scores[q] > before.scores[q] for q in shared)
        broken = sum(after.scores[q] < before.scores[q] for q in shared)
        groups = []
        rows = members(before.records.only(shared), groupings())
        for breakdown, name, records in [("", "all", None), *rows]:
            qids = shared if records is None else list(records)
            a = before.over(before.records[q] for q in qids)
            b = after.over(after.records[q] for q in qids)
            if a and b:
                groups.append((f"{breakdown}: {name}" if breakdown else name, a, b))
        return Pair(before.number, after.number, fixed, broken, groups)


def make_board(evaluations: Sequence[Evaluation], metric: str) -> Board:
    """What a report shows of `evaluations`, scored by the metric called `metric`.

    Raises:
        UnknownNameError: there is no such metric.
    """
    scored = get_metric(metric)
    labels = label_runs(evaluations)
    runs = [
        RunView(number, label, evaluation, evaluation.records, scored)
        for number, (label, evaluation) in enumerate(zip(labels, evaluations, strict=True))
    ]
    questions: dict[str, Record] = {}
    for run in runs:
        for qid, record in run.records.items():
            questions.setdefault(qid, record)
    return Board(scored, runs, list(questions.values()))


def mean_of(records: Iterable[Record], metric: Metric) -> Mean | None:
    """The mean of `metric` over the records that have it; for one record the mean alone.

    The interval is by clusters where the records name them, as everywhere.
    """
    scored = [(r, score) for r in records if (score := metric.score(r)) is not None]
    if not scored:
        return None
    scores = [score for _, score in scored]
    mean = sum(scores) / len(scores)
    interval = mean_interval(
        scores, metric.score_range, usable_clusters([cluster_of(r) for r, _ in scored])
    )
    low, high = (interval.low, interval.high) if interval else (mean, mean)
    return Mean(mean, low, high, len(scores))


def _cell(mean: Mean | None) -> str:
    return "-" if mean is None else mean_cell(mean.mean, Interval(mean.low, mean.high))


def _stages(record: Record, scores: Mapping[str, float]) -> list[float | None] | None:
    gold = set(record.gold_pids)
    if not gold or record.qid not in scores:
        return None
    retrieved = gold & set(union(record))
    read = next((s.pids for s in reversed(record.steps) if s.action == "answer" and s.pids), None)
    share = None if read is None else len(retrieved & set(read)) / len(gold)
    return [1.0, len(retrieved) / len(gold), share, scores[record.qid]]


def _compiled(run: RunView) -> bool:
    return bool(run.evaluation.card.identity.get("compiled"))


def _key(run: RunView) -> tuple[object, ...]:
    card = run.evaluation.card
    return (card.program, card.model, card.data.digest)
