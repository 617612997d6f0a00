"""Optimizers: each over one of DSPy's; `base` has the contract they share."""

from ragbench.optimizers import bootstrap as bootstrap, instructions as instructions, knn as knn
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
