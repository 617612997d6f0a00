"""Sweeps: many cells from one file."""

from ragbench.experiments.sweep.spec import Cell, Sweep, load_sweep
from ragbench.experiments.sweep.sweeps import Contrast, Outcome, Swept, arms_of, checked, run_sweep
