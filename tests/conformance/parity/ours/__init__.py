"""What ragbench makes of the inputs of the parity cases, a module per system.

Each has a function of a case's world that gives its parts: a function of an input each, whose
outcome is JSON in the shape of the authors' side (`benchmarks/parities`).
"""

from collections.abc import Callable, Mapping
from typing import Any

World = Mapping[str, Any]
Parts = Mapping[str, Callable[[Any], Any]]
