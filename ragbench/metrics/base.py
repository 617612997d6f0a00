"""The registry of metrics, and what a metric is.

A metric is a pure function of one record: it never asks a model and never looks at anything but the
record, so a run can be scored again at any time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragbench.registry import Registry


@dataclass(frozen=True)
class Metric:
    """A named score of one record.

    `score` takes a record as it is stored (a mapping; see `experiments.records`) and gives a
    number in the stated range, or None where the record has not what it needs; a failed record has
    the `worst` score. `source` names the paper or script that defines it.
    """

    name: str
    score: Callable[[Mapping[str, Any]], float | None]
    description: str
    source: str = ""
    worst: float = 0.0
    higher_is_better: bool = True


METRICS: Registry[Metric] = Registry("metric", package="ragbench.metrics")
