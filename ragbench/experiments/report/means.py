"""Means with their 95 % intervals, for the rows of tables."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ragbench.experiments.report.table import Column, with_interval
from ragbench.experiments.runs.clusters import clusters_of, mean_of_run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.score.protocols import Protocol, scores_of
from ragbench.experiments.store import StoredRecords
from ragbench.metrics import Bounds, get_metric


def measured(records: StoredRecords, name: str) -> dict[str, float | None]:
    """Return the mean of a metric over the records that have it, with its interval, as a row.

    Args:
        records: The records.
        name: Name of the metric.
    """
    metric = get_metric(name)
    return mean_row(name, records.column(metric.score), records, metric.score_range)


def mean_row(
    name: str, scores: Mapping[str, float | None], records: StoredRecords, bounds: Bounds
) -> dict[str, float | None]:
    """Return the mean of scores with its interval as cells of a row. They are None without a score.

    Args:
        name: Name of the cells.
        scores: Score by question.
        records: Records of the questions, for their clusters.
        bounds: Range of the metric.
    """
    estimate = mean_of_run(records, scores, bounds)
    if estimate is None:
        return with_interval(name, None, None)
    return with_interval(name, estimate.mean, estimate.interval)


def protocol_row(runs: Sequence[Evaluation], protocol: Protocol) -> dict[str, float | None]:
    """Return the scores of runs under a protocol as a row.

    Args:
        runs: Runs to average over.
        protocol: The protocol.

    Returns:
        The means. There is an interval only for a single run.
    """
    scored = []
    for run in runs:
        records = run.records
        scored.append(scores_of(protocol, list(records.values()), clusters_of(records)))
    row: dict[str, float | None] = {}
    for name in scored[0]:
        means = []
        ends = None
        for by_name in scored:
            score = by_name[name]
            if score is not None:
                means.append(score["mean"])
                ends = score.get("interval")
        row |= with_interval(
            f"{name} in {protocol.name}",
            fmean(means) if len(means) == len(runs) else None,
            ends if len(runs) == 1 else None,
        )
    return row


def protocol_labels(protocol: Protocol) -> list[str]:
    """Return the names of the scores under `protocol` in rows and tables."""
    return [f"{m.label or m.metric} in {protocol.name}" for m in protocol.measures]


def sizes_in_words(sizes: Iterable[int]) -> str:
    """Return numbers of questions as text, such as "100" or "80 to 100"."""
    ascending = sorted(sizes)
    return " to ".join(f"{n:,}" for n in dict.fromkeys((ascending[0], ascending[-1])))


def known_columns(labels: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column of means for each label that has a value.

    Args:
        labels: Names of the values.
        rows: The rows.
    """
    columns = []
    for name in labels:
        if any(row.get(name) is not None for row in rows):
            columns.append(Column(name, kind="mean", interval=True))
    return columns
