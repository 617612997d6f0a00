"""Self-RAG's long form: a beam over drafts that grow by one sentence from one passage.

Each kept draft is asked whether it needs more facts; if so, passages are searched for with the
question and the draft's last sentence, and each writes and grades a next sentence. A sentence's
score is brought to [0, 1] before the scores multiply along the path, because a product of numbers
that may be negative ranks nothing; drafts are compared by the geometric mean, because the product
alone would rank a short draft above what it grew into. A draft whose gate says no is closed as it
stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy

from ragbench.metrics import normalise_answer
from ragbench.programs.core import BudgetSpentError, Trace
from ragbench.programs.self_rag.grades import UNREADABLE, Grades, is_backed, shown, wants_passages
from ragbench.retrievers import Passage


@dataclass(frozen=True)
class Draft:
    """Sentences, the passage behind each, and the score of each in [0, 1]."""

    segments: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    scores: tuple[float, ...] = ()
    closed: bool = False

    @property
    def text(self) -> str:
        """The sentences as one text."""
        return " ".join(self.segments)

    @property
    def score(self) -> float:
        """The geometric mean of the sentences' scores; 1 without any."""
        return math.prod(self.scores) ** (1 / max(len(self.scores), 1))


@dataclass(frozen=True)
class _Child:
    draft: Draft
    backed: bool


class Beam:
    """The drafts of one question."""

    def __init__(
        self, trace: Trace, knobs: Any, *, proceed: dspy.Module, write: dspy.Module
    ) -> None:
        self.trace, self.knobs = trace, knobs
        self._proceed, self._write = proceed, write

    def search(self) -> list[Draft]:
        """The `width` best drafts that have a sentence, best first."""
        drafts = [Draft()]
        for _ in range(self.knobs.depth):
            growing = [draft for draft in drafts if not draft.closed]
            if not growing:
                break
            try:
                grown = self.trace.fan_out(self._grow, growing, calls_each=1 + self.knobs.k)
            except BudgetSpentError:
                self.trace.count("cut_by_budget")
                break
            kept = [draft for draft in drafts if draft.closed] + growing[len(grown) :]
            kept += [draft for children in grown for draft in children]
            drafts = _best(kept, self.knobs.width)
        return [draft for draft in drafts if draft.segments]

    def _grow(self, draft: Draft) -> list[Draft]:
        trace = self.trace
        if draft.segments and not wants_passages(
            trace, self._proceed, self.knobs, draft=draft.text
        ):
            return [replace(draft, closed=True)]
        query = " ".join([trace.question, *draft.segments[-1:]])
        passages = trace.search(query, k=self.knobs.k)
        written = trace.fan_out(lambda passage: self._continued(draft, passage), passages)
        children = [child for child in written if child is not None]
        if self.knobs.drop_unsupported and any(child.backed for child in children):
            children = [child for child in children if child.backed]
        return [child.draft for child in children] or [replace(draft, closed=True)]

    def _continued(self, draft: Draft, passage: Passage) -> _Child | None:
        """`draft` with a next sentence from `passage`; None if that writes nothing new."""
        reply = self.trace.ask(
            self._write,
            otherwise={"segment": "", "done": False, **UNREADABLE},
            question=self.trace.question,
            passage=shown(passage, self.knobs),
            draft=draft.text,
        )
        segment = " ".join(reply.segment.split())
        if not segment or segment in draft.segments:
            return None
        grades = Grades.of(reply)
        grown = Draft(
            (*draft.segments, segment),
            (*draft.passages, passage),
            (*draft.scores, self._unit_score(grades)),
            bool(reply.done),
        )
        self.trace.step(
            "critique",
            input=draft.text,
            observation=segment,
            pids=(passage.pid,),
            notes={**grades.likely, "score": round(grown.score, 4)},
        )
        return _Child(grown, is_backed(grades.support, "partial"))

    def _unit_score(self, grades: Grades) -> float:
        knobs = self.knobs
        low = -knobs.w_utility if knobs.signed_utility else knobs.w_utility
        high = (
            knobs.w_relevance
            + knobs.w_support
            + (1 if knobs.signed_utility else 5) * (knobs.w_utility)
        )
        return (grades.score(knobs) - low) / (high - low) if high > low else 1.0


def _best(drafts: Sequence[Draft], width: int) -> list[Draft]:
    """The `width` best of `drafts`, of which those of the same sentences count once."""
    different: dict[tuple[str, ...], Draft] = {}
    for draft in sorted(drafts, key=lambda d: -d.score):  # stable: the first of equals
        different.setdefault(tuple(map(normalise_answer, draft.segments)), draft)
    return list(different.values())[:width]
