"""Optimizers: one file each, over DSPy's own; `base` has the contract they share."""

from ragbench.optimizers import bootstrap, gepa, labeled, mipro, optuna, random_search
from ragbench.optimizers.base import OPTIMIZERS

__all__ = ["OPTIMIZERS", "bootstrap", "gepa", "labeled", "mipro", "optuna", "random_search"]
