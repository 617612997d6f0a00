"""Statistics of means and paired differences: intervals, tests, power, seeds, clusters, looks."""

# DSPy 3.4.0 leaves numpy half imported, and `numpy.typing` then fails.
from numpy import ndarray as _ndarray  # noqa: F401

from ragbench.metrics.stats.betting import (
    EProcess as EProcess,
    anytime_interval as anytime_interval,
    betting_interval as betting_interval,
    e_process as e_process,
)
from ragbench.metrics.stats.comparison import (
    Comparison as Comparison,
    Method as Method,
    bet_units as bet_units,
    compare_scores as compare_scores,
    correct as correct,
    holm as holm,
)
from ragbench.metrics.stats.estimates import (
    Interval as Interval,
    MeanEstimate as MeanEstimate,
    estimate_mean as estimate_mean,
    mean_interval as mean_interval,
    paired_interval as paired_interval,
)
from ragbench.metrics.stats.power import (
    ALPHA as ALPHA,
    PlannedTest as PlannedTest,
    questions_needed as questions_needed,
)
from ragbench.metrics.stats.seeds import LEAST_SEEDS as LEAST_SEEDS, VarianceSplit as VarianceSplit
from ragbench.metrics.stats.selection import (
    Best as Best,
    corrected_best as corrected_best,
    expected_lead as expected_lead,
)
