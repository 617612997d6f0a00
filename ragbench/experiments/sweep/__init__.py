"""Sweeps: many cells from one file."""

from ragbench.experiments.sweep.spec import Cell as Cell, Sweep as Sweep, load_sweep as load_sweep
from ragbench.experiments.sweep.sweeps import (
    Contrast as Contrast,
    Outcome as Outcome,
    Swept as Swept,
    checked as checked,
    run_sweep as run_sweep,
)
