"""Statistics of means and paired differences: intervals, tests, power, seeds, clusters."""

# DSPy 3.4.0 leaves numpy half imported, and `numpy.typing` then fails.
from numpy import ndarray as _ndarray
