"""Optimizers: one file each, over DSPy's own; `base` has the contract they share."""

from ragbench.optimizers import (
    bootstrap,
    copro,
    gepa,
    infer_rules,
    knn,
    labeled,
    mipro,
    optuna,
    random_search,
    simba,
)
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, measure
from ragbench.optimizers.scoring import OwnMetric, StandIn, make_scorer
from ragbench.optimizers.task import Budget, Candidate, Scores, SearchResult, Size, Task

__all__ = [
    "OPTIMIZERS",
    "Budget",
    "Candidate",
    "Optimizer",
    "OwnMetric",
    "Scores",
    "SearchResult",
    "Size",
    "StandIn",
    "Task",
    "bootstrap",
    "copro",
    "gepa",
    "infer_rules",
    "knn",
    "labeled",
    "make_scorer",
    "measure",
    "mipro",
    "optuna",
    "random_search",
    "simba",
]
