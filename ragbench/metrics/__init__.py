"""Scores as pure functions of records, their registry, and the statistics of comparing runs."""

from ragbench.metrics import (
    answer,
    drop,
    efficiency,
    graphrag_bench,
    grounding,
    judged,
    retrieval,
    support,
)
from ragbench.metrics.base import METRICS, Metric, get_metric, metric_names

__all__ = [
    "METRICS",
    "Metric",
    "answer",
    "drop",
    "efficiency",
    "get_metric",
    "graphrag_bench",
    "grounding",
    "judged",
    "metric_names",
    "retrieval",
    "support",
]
