"""Scores as pure functions of records, their registry, and the statistics of comparing runs."""

from ragbench.metrics import answer, drop, retrieval, support
from ragbench.metrics.base import METRICS, Metric, get_metric, metric_names

__all__ = [
    "METRICS",
    "Metric",
    "answer",
    "drop",
    "get_metric",
    "metric_names",
    "retrieval",
    "support",
]
