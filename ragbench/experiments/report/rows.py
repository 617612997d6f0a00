"""Rows of tables: each value of a run, of an arm of several runs, and of a comparison.

Every table and the page select columns from these rows, so a number has one definition.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from ragbench.experiments.compare.spending import index_cost
from ragbench.experiments.report.table import Column, with_interval
from ragbench.experiments.runs.clusters import clusters_of, mean_of_run
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, GOLD_RETRIEVED, Evaluation, Summary
from ragbench.experiments.score.protocols import Protocol, scores_of
from ragbench.experiments.store import StoredRecords
from ragbench.metrics import Bounds, Comparison, get_metric
from ragbench.metrics.answer import is_open_question

#: Metrics of data with questions that have no answer.
ABSTENTION = ("answer_rate", "selective_accuracy", "correct_refusal_rate")
#: Columns of a comparison.
COMPARED = (
    Column("n", kind="count"),
    Column("a", "A", "mean", interval=True, drop=4),
    Column("b", "B", "mean", interval=True, drop=3),
    Column("difference", "B - A", "gain", interval=True),
    Column("p", "p (Holm)", "p", drop=5),
    Column("detectable", kind="score", drop=6),
)
#: Additional columns for machines. On a terminal, a sentence shows these facts.
FOR_MACHINES = tuple(
    Column(name, for_machines=True)
    for name in (
        "verdict", "outcome", "breakdown", "scope", "corrected_low", "corrected_high",
        "n_needed", "n_least", "seeds_needed",
    )
)  # fmt: skip


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
    """Return the mean scores of runs by the measures of a published evaluation.

    Args:
        runs: Runs to average over.
        protocol: Measures of that evaluation.

    Returns:
        The means. There is an interval only for a single run.
    """
    scored = []
    for run in runs:
        records = run.records
        scored.append(scores_of(protocol, list(records.values()), clusters_of(records)))
    row: dict[str, float | None] = {}
    for name in scored[0]:
        scores = [by_name[name] for by_name in scored]
        mean = None
        if None not in scores:
            mean = fmean(score["mean"] for score in scores if score)
        ends = scores[0].get("interval") if len(scores) == 1 and scores[0] else None
        row |= with_interval(f"{name} in {protocol.name}", mean, ends)
    return row


def known_columns(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Column]:
    """Return a column of means for each label that has a value.

    Args:
        rows: The rows.
        labels: Names of the values.
    """
    columns = []
    for name in labels:
        if any(row.get(name) is not None for row in rows):
            columns.append(Column(name, kind="mean", interval=True))
    return columns


def protocol_labels(protocol: Protocol) -> list[str]:
    """Return the names of the scores under `protocol` in rows and tables."""
    return [f"{m.label or m.metric} in {protocol.name}" for m in protocol.measures]


def row_of_run(run: Evaluation) -> dict[str, Any]:
    """Return the values of a run, with the cost of its index if it has one."""
    index = index_cost(run.card)
    row = row_of_questions(run.summary, run.records)
    if index is not None:
        row["index_usd"] = index.usd
    if run.card.data_card.get("unanswerable"):
        for name in ABSTENTION:
            row |= measured(run.records, name)
    if "imported" in run.card.identity:
        row |= _known_amounts(run.records)
    return row | dict.fromkeys(run.card.unknown)


def row_of_questions(summary: Summary, records: StoredRecords) -> dict[str, Any]:
    """Return the values of a run, or of some of its questions.

    Spending is per question, without caching and at list price.

    Args:
        summary: Summary of the questions.
        records: Records of the questions.
    """
    as_if = summary.as_if
    totals = {
        "calls": as_if.calls,
        "sequential_calls": summary.critical_path_calls,
        "searches": summary.retrievals,
        "tokens": as_if.tokens,
        "embedder_tokens": as_if.other_tokens or None,
        "cost_usd": as_if.cost_usd,
    }
    row: dict[str, Any] = {"n": summary.n, **measured(records, "em"), **measured(records, "f1")}
    for name in (GOLD_IN_CONTEXT, GOLD_RETRIEVED):
        row[name] = measured(records, name)[name]
    row["failed"] = summary.failed
    for name, total in totals.items():
        row[name] = None if total is None or not summary.n else total / summary.n
    for name in ("p50", "p95"):
        row[f"{name}_s"] = summary.latency_s.get(name)
    return row


def _known_amounts(records: StoredRecords) -> dict[str, Any]:
    """Return the mean of each amount over the questions for which a file states it.

    The key `partly` lists the amounts that some questions lack.
    """
    row: dict[str, Any] = {"partly": []}
    for name in ("calls", "tokens", "cost_usd", "latency_s"):
        column = records.column(get_metric(name).score)
        values = [value for value in column.values() if value is not None]
        if not values:
            continue
        if name == "latency_s":
            p50, p95 = np.quantile(values, [0.5, 0.95])
            row |= {"p50_s": float(p50), "p95_s": float(p95)}
        else:
            row[name] = fmean(values)
        if len(values) < len(column):
            row["partly"].append(f"{name} of {len(values)} of {len(column)} questions")
    return row


#: Values of a run that are averaged over the runs of an arm.
_AVERAGED = (GOLD_IN_CONTEXT, "calls", "tokens", "cost_usd", "p95_s")


def row_of_arm(runs: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the values of an arm: means over its runs, and the number of all failures."""
    rows = list(map(row_of_run, runs))
    row: dict[str, Any] = {"runs": len(runs), "n": rows[0]["n"]}
    for name in _AVERAGED:
        values = [values_of_run[name] for values_of_run in rows]
        row[name] = None if None in values else fmean(values)
    return {**row, "failed": sum(values_of_run["failed"] for values_of_run in rows)}


def memory_row(run: Evaluation, evaluations: Sequence[Evaluation]) -> dict[str, float | None]:
    """Return the F1 gain from memorized names, if the renamed twin of `run` is in the table.

    The gain is the mean of plain minus renamed scores over the open questions that both runs have.
    Memory cannot show if the answer is yes or no, or is in the question.

    Args:
        run: The run with plain names.
        evaluations: All runs of the table.
    """
    metric = get_metric("f1")
    for twin in evaluations:
        identity = twin.card.identity
        renamed = {**run.card.identity, "rename_entities": identity.get("rename_entities")}
        is_twin = identity == renamed and "rename_entities" not in run.card.identity
        if not is_twin or twin.card.data_card.get("twin_of") != run.card.data.digest:
            continue
        is_open = run.records.column(is_open_question)
        twin_scores = twin.records.column(metric.score)
        gains: dict[str, float | None] = {}
        for qid, score in run.records.column(metric.score).items():
            twin_score = twin_scores.get(qid)
            if score is not None and twin_score is not None and is_open[qid]:
                gains[qid] = score - twin_score
        if gains:
            row = mean_row("memory", gains, run.records, (-1.0, 1.0))
            return {**row, "memory_n": len(gains)}
    return {}


def compared_rows(
    identifying: Mapping[str, Any], by_metric: Mapping[str, Comparison]
) -> list[dict[str, Any]]:
    """Return a row for each metric, for `COMPARED` and `FOR_MACHINES`.

    The corrected interval excludes 0 if and only if the outcome is better or worse.

    Args:
        identifying: Values that identify the comparison, for every row.
        by_metric: Comparison by metric.
    """
    rows = []
    for metric, c in by_metric.items():
        row: dict[str, Any] = {"metric": metric, "n": c.n}
        row |= with_interval("a", c.mean_a, c.interval_a)
        row |= with_interval("b", c.mean_b, c.interval_b)
        row |= with_interval("difference", c.difference, c.interval)
        row |= with_interval("corrected", None, c.corrected_interval)
        row |= {"p": c.p_adjusted, "detectable": c.minimum_detectable, "scope": ""}
        if c.interval:
            row["scope"] = c.interval.scope
        for name in ("verdict", "outcome", "breakdown", "n_needed", "n_least", "seeds_needed"):
            row[name] = getattr(c, name)
        rows.append({**identifying, **row})
    return rows


def cost_row(measure: str, c: Comparison) -> dict[str, Any]:
    """Return the row of a cost: means, their difference and its interval in one unit.

    Args:
        measure: Name of the cost in `MEASURES`. Dollars are for 1,000 questions.
        c: The comparison, per question.
    """
    times = 1
    if measure == "cost $":
        times = 1000
        measure = "$/1,000"
    values = {"a": c.mean_a, "b": c.mean_b, **with_interval("difference", c.difference, c.interval)}
    if c.most_expensive is not None:
        values["most_a"], values["most_b"] = c.most_expensive
    row: dict[str, Any] = {"measure": measure}
    for name, value in values.items():
        row[name] = None if value is None else times * value
    return {**row, "ratio": c.ratio}
