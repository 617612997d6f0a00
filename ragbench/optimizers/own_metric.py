"""A metric of one's own to compile for: any callable that DSPy's optimizers take.

It is named `package.module:function` or `path/to/file.py:function`, and is called as
`metric(example, prediction, trace=None)`; the example has `question`, `answer` and `answers`. Its
score is a number whose best value is 1, a bool, or a prediction with a `score`.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy

from ragbench.errors import ConfigError
from ragbench.programs.external import load_object


def is_own(name: str) -> bool:
    """Whether `name` is where a function is, not the name of a metric of ragbench."""
    return ":" in name


class OwnMetric:
    """The scorer that `spec` names.

    Raises:
        ConfigError: it cannot be imported, or is not callable.
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._function: Callable[..., Any] = load_object(spec, "--metric")
        if not callable(self._function):
            raise ConfigError(f"--metric {spec} is no function")

    def __call__(self, example: dspy.Example, prediction: Any) -> float:
        """The score, as the optimizers average it."""
        return _number(self._function(example, prediction))

    def is_best(self, example: dspy.Example, prediction: Any, trace: Any) -> bool:
        """Whether the prediction may become a demonstration: what the function says, or 1."""
        said = self._function(example, prediction, trace)
        return said if isinstance(said, bool) else _number(said) >= 1.0

    def check(self, example: dspy.Example) -> None:
        """Do nothing if it scores the gold answer of `example`; asks no LM.

        Raises:
            ConfigError: it raises, or what it gives is no finite number.
        """
        prediction = dspy.Prediction(answer=example.answers[0], passages=[])
        try:
            score = self(example, prediction)
            self.is_best(example, prediction, [])
        except Exception as error:  # whatever a stranger's function raises
            raise ConfigError(
                f"--metric {self.spec} fails on a gold answer: {type(error).__name__}: {error}; it "
                "is called as metric(example, prediction, trace=None) and gives a number"
            ) from None
        if not math.isfinite(score):
            raise ConfigError(f"--metric {self.spec} gives {score} for a gold answer")

    @property
    def digest(self) -> str:
        """A hash of its source file: a changed metric is another compile."""
        try:
            source = Path(inspect.getfile(self._function)).read_bytes()
        except (OSError, TypeError):  # of a notebook, or an object with a `__call__`
            source = repr(self._function).encode()
        return hashlib.sha256(source).hexdigest()[:16]


def _number(said: Any) -> float:
    score = said.score if isinstance(said, dspy.Prediction) else said
    if isinstance(score, bool | int | float):
        return float(score)
    raise TypeError(f"it gave {type(said).__name__}, not a number")
