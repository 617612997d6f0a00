"""Optimizers, each based on one of DSPy's. `base` defines their common contract."""

from ragbench.optimizers import bootstrap, ensemble, external, instructions, knn, mipro, pipeline
from ragbench.optimizers.base import OPTIMIZERS, Optimizer, measure
from ragbench.optimizers.scoring import OwnMetric, make_scorer
from ragbench.optimizers.task import Budget, Candidate, Scores, SearchResult, Size, Task
