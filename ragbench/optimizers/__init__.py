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
from ragbench.optimizers.base import OPTIMIZERS

__all__ = [
    "OPTIMIZERS",
    "bootstrap",
    "copro",
    "gepa",
    "infer_rules",
    "knn",
    "labeled",
    "mipro",
    "optuna",
    "random_search",
    "simba",
]
