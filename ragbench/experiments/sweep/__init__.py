"""Sweeps: many cells from one file."""

from ragbench.experiments.sweep.spec import Cell, Sweep, load_sweep
from ragbench.experiments.sweep.sweeps import Contrast, Outcome, Swept, checked, run_sweep
