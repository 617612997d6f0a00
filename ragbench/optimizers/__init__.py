"""Optimizers: each over one of DSPy's; `base` has the contract they share."""

from ragbench.optimizers import (
    bootstrap as bootstrap,
    copro as copro,
    gepa as gepa,
    infer_rules as infer_rules,
    knn as knn,
    mipro as mipro,
    optuna as optuna,
    simba as simba,
)
from ragbench.optimizers.base import (
    OPTIMIZERS as OPTIMIZERS,
    Optimizer as Optimizer,
    measure as measure,
)
from ragbench.optimizers.scoring import (
    OwnMetric as OwnMetric,
    StandIn as StandIn,
    make_scorer as make_scorer,
)
from ragbench.optimizers.task import (
    Budget as Budget,
    Candidate as Candidate,
    Scores as Scores,
    SearchResult as SearchResult,
    Size as Size,
    Task as Task,
)
