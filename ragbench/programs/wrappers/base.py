"""Programs around a program: the controls that a verdict on compiling needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.programs.core import Described, IndexAhead, RAGProgram
from ragbench.retrievers import Progress


class Around(RAGProgram):
    """Ask another program."""

    # A wrapper is made of a finished program, not of a retriever and knobs, and is not registered.
    def __init__(self, inner: RAGProgram) -> None:
        dspy.Module.__init__(self)
        self.inner = inner
        self.name = inner.name  # type: ignore[misc]
        self.retriever, self.knobs = inner.retriever, inner.knobs

    @property
    def label(self) -> str:
        """As the inner program."""
        return self.inner.label

    def index_facts(self) -> Mapping[str, Any]:
        """As the inner program."""
        return self.inner.index_facts()

    def index_ahead(self) -> Sequence[IndexAhead]:
        """As the inner program."""
        return self.inner.index_ahead()

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """As the inner program."""
        self.inner.check_lms(lm, role_lms)

    def other_calls(self) -> Sequence[Described]:
        """As the inner program."""
        return self.inner.other_calls()

    def prepare(self, progress: Progress | None = None) -> None:
        """As the inner program."""
        self.inner.prepare(progress)

    def forward(self, question: str) -> dspy.Prediction:
        """The inner program's prediction, as the subclass changes it."""
        raise NotImplementedError
