"""Statistics of means and paired differences: intervals, tests, power, seeds, clusters, looks."""

from ragbench.metrics.stats.betting import (
    EProcess,
    anytime_interval,
    betting_interval,
    e_process,
)
from ragbench.metrics.stats.comparison import (
    Comparison,
    Method,
    bet_units,
    compare_scores,
    correct,
)
from ragbench.metrics.stats.estimates import (
    Interval,
    MeanEstimate,
    estimate_mean,
    mean_interval,
    paired_interval,
)
from ragbench.metrics.stats.power import ALPHA, power, questions_needed
from ragbench.metrics.stats.seeds import LEAST_SEEDS, VarianceSplit
from ragbench.metrics.stats.selection import Best, corrected_best, expected_lead
from ragbench.metrics.stats.significance import McNemar, holm

__all__ = [
    "ALPHA",
    "LEAST_SEEDS",
    "Best",
    "Comparison",
    "EProcess",
    "Interval",
    "McNemar",
    "MeanEstimate",
    "Method",
    "VarianceSplit",
    "anytime_interval",
    "bet_units",
    "betting_interval",
    "compare_scores",
    "correct",
    "corrected_best",
    "e_process",
    "estimate_mean",
    "expected_lead",
    "holm",
    "mean_interval",
    "paired_interval",
    "power",
    "questions_needed",
]
