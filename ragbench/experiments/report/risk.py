"""Risk and coverage: accuracy of a program on the answers with the highest confidence.

The accuracy of a calibrated program rises with its confidence (El-Yaniv and Wiener 2010, "On the
Foundations of Noise-free Selective Classification"). Answers without a confidence, refusals and
failures come last and are in the full set only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.runs.clusters import mean_of_run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.metrics import get_metric
from ragbench.metrics.abstention import confidence

#: Fractions of the questions, those with the highest confidence first.
COVERAGES = (0.2, 0.4, 0.6, 0.8, 1.0)
_METRIC = "em"
#: Columns that the table needs from each record.
RISK_COLUMNS = (get_metric(_METRIC).score, confidence)


def risk_table(evaluations: Sequence[Evaluation]) -> Table | None:
    """Return a row for each run and coverage; None if no run records a confidence.

    Answers with equal confidence stay together, so the coverage may exceed the requested one.
    """
    rows = []
    for evaluation in evaluations:
        rows += _rows(evaluation)
    if not rows:
        return None
    columns = [
        Column("run"),
        Column("coverage", kind="share"),
        Column("n", kind="count"),
        Column("least confidence", kind="number"),
        Column(_METRIC, kind="score", interval=True),
        Column("risk", kind="score"),
    ]
    return Table("risk", columns, rows)


def _rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    records = evaluation.records
    score, _ = RISK_COLUMNS
    records.compute(RISK_COLUMNS)
    scores = {}
    for qid, value in records.column(score).items():
        if value is not None:
            scores[qid] = value
    sure: dict[str, float] = {}
    for qid, level in records.column(confidence).items():
        if level is not None and qid in scores:
            sure[qid] = level
    if not sure:
        return []
    ranked = sorted(sure, key=lambda qid: -sure[qid])
    rows: list[dict[str, Any]] = []
    for coverage in COVERAGES:
        most = round(coverage * len(scores))
        least: float | None = None
        if coverage == 1.0:
            chosen = list(scores)
        elif 0 < most <= len(ranked):
            least = bar = sure[ranked[most - 1]]
            chosen = [qid for qid in ranked if sure[qid] >= bar]
        else:
            continue
        if rows and rows[-1]["n"] == len(chosen):
            continue
        estimate = mean_of_run(records, {qid: scores[qid] for qid in chosen}, (0.0, 1.0))
        assert estimate is not None
        row = {"run": evaluation.folder.name, "coverage": len(chosen) / len(scores)}
        row |= {"n": len(chosen), "least confidence": least, "risk": 1 - estimate.mean}
        rows.append(row | with_interval(_METRIC, estimate.mean, estimate.interval))
    return rows
