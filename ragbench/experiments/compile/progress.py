"""How far a search over prompts has come: candidates scored, the best so far, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import dspy

from ragbench.dspy_private import private
from ragbench.experiments.estimates import duration
from ragbench.ranges import Range

#: A line at the least after each of so many parts of the runs that are expected.
_PARTS = 10


_Callback: Any = private("dspy.utils.callback.BaseCallback", "compile")


class SearchProgress(_Callback):
    """Tells of each candidate that DSPy evaluates, and of optimizers that evaluate by themselves.

    `runs` is what the optimizer is expected to take; `scorer` must stand in the place of its own.
    """

    def __init__(
        self,
        on_message: Callable[[str], None],
        scorer: Callable[[dspy.Example, Any], float],
        *,
        metric: str,
        runs: Range,
        n_val: int,
    ) -> None:
        self._on_message, self._scorer, self._metric, self._runs = on_message, scorer, metric, runs
        self._n_val = n_val
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._done = self._told = self._candidates = 0
        self._best: float | None = None

    def scorer(self, example: dspy.Example, prediction: Any) -> float:
        """The scorer, counting the program's runs."""
        score = self._scorer(example, prediction)
        with self._lock:
            self._done += 1
            due = self._done - self._told >= max(1, self._runs.high // _PARTS)
            if due:
                self._tell("searching")
        return score

    def on_evaluate_end(
        self, call_id: str, outputs: Any | None, exception: BaseException | None = None
    ) -> None:
        """Count a candidate in; those scored on a part of the questions are not the best."""
        if outputs is None:
            return
        with self._lock:
            self._candidates += 1
            score, n = float(outputs.score) / 100, len(outputs.results)
            if n >= self._n_val and (self._best is None or score > self._best):
                self._best = score
            self._tell(f"candidate {self._candidates}: {self._metric} {score:.3f} on {n} questions")

    def _tell(self, message: str) -> None:
        self._told = self._done
        best = "" if self._best is None else f"; best {self._best:.3f}"
        left = max(0, self._runs.high - self._done)
        took = time.monotonic() - self._start
        rest = f", at most {duration(took / self._done * left)} left" if self._done else ""
        self._on_message(f"  {message}{best}; {self._done} of {self._runs} program runs{rest}")
