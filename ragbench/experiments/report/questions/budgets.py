"""Accuracy within a budget: what is left of a score where dearer answers do not count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ragbench.experiments.report.grid import Grid
from ragbench.experiments.report.questions.section import Named, Section, Titled
from ragbench.metrics import Metric, get_metric

#: Measures of spending and their heading.
MEASURES: Mapping[str, str] = {
    "calls": "Within so many LM calls",
    "tokens": "Within so many tokens",
    "cost_usd": "Within so many dollars",
}
_SHARES = (0.25, 0.5, 0.75, 0.9, 1.0)
_LEAD = (
    "An answer counts where its question took no more than the budget, else it scores the worst. "
    "The budgets are quantiles of what the questions of all runs took, as if uncached."
)


def budgets(runs: Sequence[Named], metric: Metric) -> Section | None:
    """A table for each measure of spending that is known and differs; None where none does."""
    tables = []
    for name, title in MEASURES.items():
        columns = [within(run, name, metric) for run in runs]
        known = [column for column in columns if column]
        limits = _limits([spent for column in known for spent, _ in column])
        if len(known) < len(runs) or len(limits) < 2:
            continue
        rows = [
            [run.label, *(f"{score_within(column, limit, metric):.3f}" for limit in limits)]
            for run, column in zip(runs, known, strict=True)
        ]
        heads = [f"{limit:,.6g}" for limit in limits]
        grid = Grid(("run", *heads), rows, frozenset({"run"}))
        tables.append(Titled(f"budget_{name}", title, grid))
    return Section("budgets", "Budgets", _LEAD, tables) if tables else None


def within(run: Named, name: str, metric: Metric) -> list[tuple[float, float]]:
    """Spending and score of each scored question; empty if one is unknown."""
    spent = run.run.records.column(get_metric(name).score)
    scores = run.run.records.column(metric.score)
    outcomes = []
    for qid, score in scores.items():
        took = spent[qid]
        if took is None:
            return []
        if score is not None:
            outcomes.append((took, score))
    return outcomes


def score_within(column: Sequence[tuple[float, float]], limit: float, metric: Metric) -> float:
    """The mean score where what took more than `limit` has the worst score."""
    return sum(score if spent <= limit else metric.worst for spent, score in column) / len(column)


def _limits(spent: Sequence[float]) -> list[float]:
    """Rounded quantiles of `spent`, each once; none where nothing was spent."""
    if not spent or max(spent) <= 0:
        return []
    quantiles = np.quantile(np.asarray(spent), _SHARES)
    return sorted({_rounded_up(float(each)) for each in quantiles if each > 0})


def _rounded_up(value: float) -> float:
    """`value` with two figures, not below it."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(round(value / unit, 9)) * unit:.2g}")
