"""How long telling a handed-over object from all others takes: under 50 ms, also at first."""

import time
from collections.abc import Callable
from typing import Any

import dspy
import numpy

from ragbench.handed_over import identity_of

MOST_S = 0.05


def main() -> None:
    """Time the first and a later reading of DSPy's module and of an installed package."""
    subjects: dict[str, Callable[[], Any]] = {
        "dspy.ChainOfThought": lambda: dspy.ChainOfThought("question -> answer"),
        "dspy.ReAct": lambda: dspy.ReAct("question -> answer", tools=[]),
        "package numpy": lambda: numpy,
    }
    for name, make in subjects.items():
        subject = make()
        for reading in ("first", "later"):
            start = time.perf_counter()
            identity_of(subject)
            seconds = time.perf_counter() - start
            verdict = "" if seconds < MOST_S else f"  over {MOST_S * 1000:.0f} ms"
            print(f"{name:20} {reading:6} {seconds * 1000:6.1f} ms{verdict}")


if __name__ == "__main__":
    main()
