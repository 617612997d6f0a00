"""Finished runs in Python: opened, compared, shown as a table, and advice from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ragbench.errors import needs_extra
from ragbench.experiments.runs.objects import AnyMetric, label_of_metric, metric_names
from ragbench.experiments.runs.summary import HEADLINE, Evaluation, reopen_arm
from ragbench.metrics import Interval, get_metric
from ragbench.record import Record

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.experiments.compare.against import RunComparison
    from ragbench.experiments.recommend import Advice
    from ragbench.experiments.report.table import Table


@dataclass(frozen=True)
class Run:
    """A finished or interrupted run: its folder, its records and their means.

    A run that was asked several times (`--repeats`) is one, of all of its `repeats`; `evaluation`
    is then the first of them.
    """

    evaluation: Evaluation
    repeats: Sequence[Evaluation] = ()
    #: Names of metrics that `scores` has beside the headline ones.
    metrics: Sequence[str] = ()

    @property
    def arm(self) -> Sequence[Evaluation]:
        """All its repeats, or the one that it is."""
        return self.repeats or [self.evaluation]

    @property
    def folder(self) -> Path:
        if self.repeats:
            return self.evaluation.folder.parent
        return self.evaluation.folder

    @property
    def records(self) -> list[Record]:
        """One record per question and repeat: after `evaluate` in the order of its questions."""
        records: list[Record] = []
        for run in self.arm:
            records.extend(run.records.values())
        return records

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the table shows of the run."""
        if self.repeats:
            return table(self).rows[0]
        return self.evaluation.summary.to_dict()

    @property
    def complete(self) -> bool:
        """Whether every question came to its end; not so where a limit stopped the run."""
        return all(run.progress.complete for run in self.arm)

    @property
    def failed(self) -> int:
        """How many of its questions failed."""
        return sum(record.failed for record in self.records)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Mean of each headline metric, and of `metrics`; a failed question counts as the worst."""
        if self.repeats:
            scores = {name: self.mean(name) or 0.0 for name in HEADLINE}
        else:
            scores = dict(self.evaluation.summary.scores)
        for name in self.metrics:
            if (mean := self.mean(name)) is not None:
                scores[label_of_metric(name)] = mean
        return scores

    def mean(self, name: AnyMetric) -> float | None:
        """The mean of a metric over the questions that have it; None if none has.

        `name` is a metric's name, FILE.py:function, or a function of one's own.
        UnknownNameError where there is no such metric.
        """
        [name] = metric_names([name])
        values = []
        for record in self.records:
            value = get_metric(name).score(record)
            if value is not None:
                values.append(value)
        if values:
            return sum(values) / len(values)
        return None

    def interval(self, name: AnyMetric) -> Interval | None:
        """The 95 % interval of `mean`, over questions by their clusters; None if none can be given.

        UnknownNameError where there is no such metric.
        """
        from ragbench.experiments.compare.paired import Shared

        [name] = metric_names([name])
        return Shared.within(self.arm).mean(self.arm, name)[1]

    def compare(self, other: AnyRun, **options: Any) -> RunComparison:
        """This run and `other`, as `ragbench.compare` compares two."""
        return compare(self, other, **options)

    def toDict(self) -> dict[str, Any]:  # noqa: N802  # as DSPy's own results call it
        """Folder, scores, summary and answers, as JSON has them."""
        columns = ("qid", "question", "answers", "answer", "failed", "scores")
        records = []
        for record in self.records:
            records.append({column: getattr(record, column) for column in columns})
        fields = {"folder": self.folder, "scores": self.scores, "summary": self.summary}
        text = json.dumps({**fields, "records": records}, default=str)
        document: dict[str, Any] = json.loads(text)
        return document

    def to_pandas(self) -> pd.DataFrame:
        """One row per question, with the columns of `ragbench export` (docs/comparing.md)."""
        from ragbench.experiments.export import open_runs, rows_of

        with needs_extra("to_pandas"):
            import pandas as pd
        return pd.DataFrame(rows_of(open_runs([self.folder])))

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        return f"Run({self.folder}, n={len(self.records)}, failed={self.failed}, {scores})"

    def _repr_html_(self) -> str:
        from ragbench.experiments.report.table import written

        return written(table(self), "html")


#: A run, or its folder.
AnyRun: TypeAlias = Run | str | Path


def compare(
    a: AnyRun,
    b: AnyRun,
    *,
    metrics: Sequence[AnyMetric] = HEADLINE,
    margin: float | None = None,
    common: bool = False,
) -> RunComparison:
    """Two runs over the same questions: differences, intervals and tests, question by question.

    `metrics` are names, FILE.py:function or functions. `margin` is the difference too small to
    matter. `common` leaves out questions that only one of the runs has.
    """
    from ragbench.experiments.compare.against import compare_all

    both = [open_run(run).arm for run in (a, b)]
    chosen = metric_names(metrics)
    return compare_all(both, metrics=chosen, common=common, margin=margin)[0]


def recommend(
    *runs: AnyRun, metric: AnyMetric = "f1", common: bool = False, worth: float = 0.05
) -> Advice:
    """Which of the programs of `runs` to use: the cheapest that is shown as good as the best mean.

    As good is less than `worth` below it, the least gain that pays for a dearer program.
    """
    from ragbench.experiments.recommend import advise
    from ragbench.experiments.report.repeats import label_arms

    arms = [open_run(run).arm for run in runs]
    [name] = metric_names([metric])
    return advise(arms, name, labels=label_arms(arms), common=common, worth=worth)


def table(*runs: AnyRun) -> Table:
    """The table of `runs` that `ragbench show` prints; `.to_pandas()` gives its numbers.

    Where one was asked several times, it has a row for each with its repeats pooled.
    """
    from ragbench.experiments.report.repeats import label_arms, pooled_table
    from ragbench.experiments.report.tables import run_table

    opened = [open_run(run) for run in runs]
    if any(run.repeats for run in opened):
        arms = [run.arm for run in opened]
        return pooled_table(arms, label_arms(arms))
    return run_table([run.evaluation for run in opened])


def open_run(folder: AnyRun) -> Run:
    """The run in `folder`, or that of all repeats in it; reading writes nothing.

    RunError where it is no run folder.
    """
    if isinstance(folder, Run):
        return folder
    path = Path(folder)
    arm = reopen_arm(path)
    if arm[0].folder == path:
        return Run(arm[0])
    return Run(arm[0], arm)
