"""Search over a program's knobs."""

from ragbench.experiments.tune.search import Point as Point
from ragbench.experiments.tune.study import (
    Tuned as Tuned,
    estimate_tune as estimate_tune,
    tune as tune,
    tune_folder as tune_folder,
)
