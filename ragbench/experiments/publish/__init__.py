"""A bundle of runs that whoever reads a number can check, offline."""

from ragbench.experiments.publish.bundle import publish
from ragbench.experiments.publish.checking import Checked, verify
