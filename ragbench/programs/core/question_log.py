"""What happened in one question, in order: steps, searches, and the passages seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ragbench.ledger import PendingCalls
from ragbench.record import Search, Step
from ragbench.retrievers import Passage

#: Bounds of one question's record: a model that writes code can note steps without end.
MAX_STEPS = 5_000
MAX_STEP_CHARS = 2_000_000
_HEAD = 200


@dataclass
class QuestionLog:
    """The log of a question, or of one item of a fan-out until it is merged into its question's."""

    steps: list[Step] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    seen: dict[str, Passage] = field(default_factory=dict)
    chars: int = 0
    #: Calls since the last step.
    pending: PendingCalls = field(default_factory=PendingCalls)

    def note(self, step: Step) -> bool:
        """Add `step`; False if it was cut, or left out, because the log is full.

        Beyond 2,000,000 characters in all the texts of a step are cut to their first 200, and
        beyond 5,000 steps none is added.
        """
        if len(self.steps) >= MAX_STEPS:
            return False
        step = replace(step, calls=(*step.calls, *self.pending.take()))
        size = len(step.input) + len(step.thought) + len(step.observation)
        fits = self.chars + size <= MAX_STEP_CHARS or size <= _HEAD
        if not fits:
            step = replace(
                step,
                input=_head(step.input),
                thought=_head(step.thought),
                observation=_head(step.observation),
            )
        self.chars += size if fits else 0
        self.steps.append(step)
        return fits

    def name_the_rest(self) -> None:
        """Give the calls after the last step to it: they were made to end what it began."""
        if self.steps and (rest := self.pending.take()):
            self.steps[-1] = replace(self.steps[-1], calls=(*self.steps[-1].calls, *rest))

    def add_search(self, search: Search, passages: Sequence[Passage]) -> None:
        """Add `search` and its `passages`; a search too many is left out, its passages are not."""
        if len(self.searches) < MAX_STEPS:
            self.searches.append(search)
        for passage in passages:
            self.seen.setdefault(passage.pid, passage)

    def merge(self, other: QuestionLog) -> None:
        """Append what `other` holds."""
        for step in other.steps:
            self.note(step)
        self.pending.add(*other.pending.take())
        self.searches += other.searches
        for pid, passage in other.seen.items():
            self.seen.setdefault(pid, passage)


def _head(text: str) -> str:
    return text if len(text) <= _HEAD else text[:_HEAD] + " ..."
