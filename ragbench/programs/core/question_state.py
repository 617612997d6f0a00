"""The state of one question: its example, its budget, and its events.

Events are steps, searches and passages in context.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dspy

from ragbench.context import Context, current
from ragbench.ledger import PendingCalls
from ragbench.programs.core.text import Passages
from ragbench.record import Search, Step
from ragbench.retrievers import Passage


class BudgetSpentError(Exception):
    """A limit of the question's budget is reached. A forced answer follows."""


@dataclass
class Budget:
    """Limits of one question. One call is reserved for the forced answer."""

    max_calls: int
    max_retrievals: int
    calls: int = 0
    retrievals: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend_call(self, *, last: bool = False) -> None:
        """Count one LM call. Only the `last` one may use the reserved call."""
        with self._lock:
            if self.calls + (not last) >= self.max_calls:
                raise BudgetSpentError("LM calls")
            self.calls += 1

    @property
    def calls_left(self) -> int:
        return self.max_calls - 1 - self.calls

    @property
    def retrievals_left(self) -> int:
        return self.max_retrievals - self.retrievals


@dataclass
class Log:
    """The events of a question, or of one item of a fan-out before it is merged, in order."""

    steps: list[Step] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    seen: dict[str, Passage] = field(default_factory=dict)
    #: Pids of the passages whose text a model saw, in order. See `pids_in_context`.
    in_context: dict[str, None] = field(default_factory=dict)
    #: Calls since the last step.
    pending: PendingCalls = field(default_factory=PendingCalls)

    def note(self, step: Step) -> None:
        self.steps.append(replace(step, calls=(*step.calls, *self.pending.take())))

    def add(
        self, hits: Passages, query: str, k: int, seconds: float, *, cached: bool = False
    ) -> None:
        """Record a search. NaN and infinite scores become 0, because records cannot store them.

        Args:
            hits: Passages that the search returned, best first.
            query: Query of the search.
            k: Requested number of passages.
            seconds: Duration in seconds.
            cached: The result is from a cache.
        """
        scores = [hit.score if math.isfinite(hit.score) else 0.0 for hit in hits]
        pairs = tuple((hit.pid, score) for hit, score in zip(hits, scores, strict=True))
        self.searches.append(Search(query, k, pairs, seconds, cached))
        for hit in hits:
            self.seen.setdefault(hit.pid, hit)

    def merge(self, log: Log) -> None:
        for step in log.steps:
            self.note(step)
        self.pending.extend(log.pending.take())
        self.searches += log.searches
        self.in_context.update(log.in_context)
        self.seen = {**self.seen, **{k: v for k, v in log.seen.items() if k not in self.seen}}


@dataclass(frozen=True)
class CurrentExample:
    """Part of the context of a question: its example."""

    example: dspy.Example


@dataclass(frozen=True)
class Questions:
    """Part of the context of a run: the examples of its data by question text.

    An optimizer passes only the text to a program.
    """

    by_text: Mapping[str, dspy.Example]


def example_of(question: str) -> dspy.Example | None:
    """Return the example of `question`, or None if unknown.

    The example of the current question comes first, then the run's data.
    """
    current_question = current().get(CurrentExample)
    if current_question is not None:
        return current_question.example
    questions = current().get(Questions)
    if questions is not None:
        return questions.by_text.get(question)
    return None


def asking(question: str, inputs: Mapping[str, Any]) -> Context:
    """Return the context in which a program answers `question`.

    Args:
        question: Text of the question.
        inputs: Further inputs of the example. If empty, the current context is returned.
    """
    if not inputs:
        return current()
    example = dspy.Example(question=question, **inputs).with_inputs("question", *inputs)
    return current().plus(CurrentExample(example))
