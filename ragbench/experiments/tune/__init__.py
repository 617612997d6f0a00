"""Search over a program's knobs."""

from ragbench.experiments.tune.search import Point
from ragbench.experiments.tune.study import Tuned, estimate_tune, tune, tune_folder
