"""Finished runs in Python: open, compare, tabulate, and recommend."""

from __future__ import annotations

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

    from ragbench.experiments.compare.comparisons import RunComparison
    from ragbench.experiments.recommend import Advice
    from ragbench.experiments.report.table import Table


@dataclass(frozen=True)
class Run:
    """A finished or interrupted run: its folder, its records and their means.

    A run with repeats (`--repeats`) combines all of its `repeats`, and `evaluation` is the first
    one.
    """

    evaluation: Evaluation
    repeats: Sequence[Evaluation] = ()
    #: Names of additional metrics in `scores`.
    metrics: Sequence[str] = ()

    @property
    def arm(self) -> Sequence[Evaluation]:
        """Sequence of the repeats, or of the single run."""
        return self.repeats or [self.evaluation]

    @property
    def folder(self) -> Path:
        if self.repeats:
            return self.evaluation.folder.parent
        return self.evaluation.folder

    @property
    def records(self) -> list[Record]:
        """Records, one per question and repeat. After `evaluate`, in the order of its questions."""
        return [record for run in self.arm for record in run.records.values()]

    @property
    def summary(self) -> Mapping[str, Any]:
        """The values of the run's row in the table."""
        if self.repeats:
            return table(self).rows[0]
        return self.evaluation.summary.to_dict()

    @property
    def complete(self) -> bool:
        """True if every question has finished, False if a limit stopped the run."""
        return all(run.progress.complete for run in self.arm)

    @property
    def failed(self) -> int:
        """Number of failed questions."""
        return sum(record.failed for record in self.records)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Mean of each headline metric and of `metrics`. A failed question scores the worst."""
        if self.repeats:
            scores = {name: self.mean(name) or 0.0 for name in HEADLINE}
        else:
            scores = dict(self.evaluation.summary.scores)
        for name in self.metrics:
            if (mean := self.mean(name)) is not None:
                scores[label_of_metric(name)] = mean
        return scores

    def mean(self, name: AnyMetric) -> float | None:
        """Return the mean of a metric over the questions that have it, or None if none has.

        `name` is a metric's name, FILE.py:function, or a function.

        Raises:
            UnknownNameError: There is no such metric.
        """
        [name] = metric_names([name])
        scores = map(get_metric(name).score, self.records)
        values = [score for score in scores if score is not None]
        return sum(values) / len(values) if values else None

    def interval(self, name: AnyMetric) -> Interval | None:
        """Return the 95 % interval of `mean`, by clusters, or None if it cannot be computed.

        Raises:
            UnknownNameError: There is no such metric.
        """
        from ragbench.experiments.compare.paired import Shared

        [name] = metric_names([name])
        return Shared.within(self.arm).mean(self.arm, name)[1]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per question, with the columns of `ragbench export`."""
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
    """Compare two runs over the same questions: differences, intervals and tests.

    Args:
        a: A run, or its folder.
        b: The other run.
        metrics: Names, FILE.py:function or functions.
        margin: Difference too small to matter, in the metric's unit.
        common: Ignore questions that only one of the runs has.
    """
    from ragbench.experiments.compare.comparisons import compare_all

    chosen = metric_names(metrics)
    return compare_all(_arms(a, b), metrics=chosen, common=common, margin=margin)[0]


def recommend(
    *runs: AnyRun, metric: AnyMetric = "f1", common: bool = False, min_gain: float = 0.05
) -> Advice:
    """Recommend the cheapest program of `runs` that is about as good as the best.

    Args:
        runs: Runs, or their folders.
        metric: Accuracy metric.
        common: Use only the questions that all runs have.
        min_gain: Smallest gain in the metric that justifies a more expensive program, in (0, 1).
    """
    from ragbench.experiments.recommend import advise
    from ragbench.experiments.report.repeats import label_arms

    arms = _arms(*runs)
    [name] = metric_names([metric])
    return advise(arms, name, labels=label_arms(arms), common=common, min_gain=min_gain)


def table(*runs: AnyRun) -> Table:
    """Return the table that `ragbench show` prints for `runs`. `.to_pandas()` returns its numbers.

    If a run has repeats, the table has one row per run, with its repeats pooled.
    """
    from ragbench.experiments.report.repeats import label_arms, pooled_table
    from ragbench.experiments.report.tables import run_table

    opened = list(map(open_run, runs))
    if any(run.repeats for run in opened):
        arms = _arms(*opened)
        return pooled_table(arms, label_arms(arms))
    return run_table([run.evaluation for run in opened])


def open_run(folder: AnyRun) -> Run:
    """Open the run in `folder`, or all repeats in it, without writing.

    Raises:
        RunError: The folder is not a run folder.
    """
    if isinstance(folder, Run):
        return folder
    path = Path(folder)
    arm = reopen_arm(path)
    if arm[0].folder == path:
        return Run(arm[0])
    return Run(arm[0], arm)


def _arms(*runs: AnyRun) -> list[Sequence[Evaluation]]:
    return [open_run(run).arm for run in runs]
