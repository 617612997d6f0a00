"""Self-RAG by prompting: a gate, a critique of each candidate, and the best candidate's answer.

Asai et al. 2023 (arXiv:2310.11511) train reflection tokens into the model; here each token is a
typed label asked of any LM, so a run of this is not a reproduction of the paper's numbers.
Variants:

- `combined`: one call answers from a passage and grades it, one more grades usefulness; the first
  `candidates` of the k passages; score = utility + 2 support + 0.5 relevance.
- `per_passage`: relevance of all k passages first, as a filter; each relevant one is then answered
  from, and graded for support and usefulness. With no relevant passage the model answers from
  memory.

A reader of single passages cannot join two paragraphs: expect weak multi-hop results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import dspy
from pydantic import Field

from ragbench.metrics.text import normalise_answer
from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.trace import Trace, render
from ragbench.retrievers.base import Passage, Retriever
from ragbench.signatures.answering import AnswerFromContext, DirectAnswer
from ragbench.signatures.judging import CritiquedAnswer, IsRel, IsSup, IsUse, RetrievalDecision

_SUPPORT = {"full": 1.0, "partial": 0.5, "none": 0.0}
_UNREADABLE = {"relevance": "relevant", "support": "partial", "utility": 3}


class SelfRAGKnobs(ProgramKnobs):
    """Knobs of `self_rag`."""

    gate: Literal["ask", "always", "never"] = Field("ask", description="retrieve: ask, or decide")
    candidates: int = Field(3, ge=1, le=50, description="passages critiqued (combined)")
    w_utility: float = Field(1.0, ge=0, le=10, description="weight of usefulness, 1 to 5")
    w_support: float = Field(2.0, ge=0, le=10, description="weight of support: 1, 0.5 or 0")
    w_relevance: float = Field(0.5, ge=0, le=10, description="weight of relevance: 1 or 0")
    select: Literal["best", "vote"] = Field("best", description="best score, or sum per answer")


@dataclass(frozen=True)
class Candidate:
    """An answer from one passage, with its grades."""

    answer: str
    pid: str
    relevance: str
    support: str
    utility: int
    score: float


@PROGRAMS.register("self_rag")
class SelfRAG(RAGProgram):
    """Decide whether to search, answer from each passage, grade the answers, and keep the best."""

    name = "self_rag"
    family = "agentic"
    paper = "arXiv:2310.11511"
    calls = "combined: 1 + 2 candidates, 2 if direct; per_passage: 1 + k + 3 per relevant passage"
    autonomy = Autonomy("no", "yes", "yes")
    Knobs = SelfRAGKnobs
    variants = {"combined": {}, "per_passage": {}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.decide = predict(RetrievalDecision)
        self.direct = predict(DirectAnswer)
        if self.knobs.variant == "combined":
            self.critique = predict(CritiquedAnswer)
        else:
            self.is_relevant = predict(IsRel)
            self.answer = predict(AnswerFromContext)
            self.is_supported = predict(IsSup)
        self.is_useful = predict(IsUse)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Gate, critique, select."""
        if not self._retrieve(trace):
            return trace.prediction(self._from_memory(trace), "direct")
        passages = trace.search(trace.question, k=self.knobs.k)
        if self.knobs.variant == "combined":
            chosen = passages[: self.knobs.candidates]
            candidates = trace.fan_out(lambda p: self._combined(trace, p), chosen, calls_each=2)
        else:
            candidates = self._per_passage(trace, passages)
        for candidate in candidates:
            self._note(trace, candidate)
        if not candidates:
            trace.count("no_relevant_passage")
            return trace.prediction(self._from_memory(trace), "direct")
        return trace.prediction(self._select(candidates), "answered")

    def force(self, trace: Trace) -> str:
        """The model's own answer."""
        return self._from_memory(trace)

    def _retrieve(self, trace: Trace) -> bool:
        if self.knobs.gate != "ask":
            return bool(self.knobs.gate == "always")
        gate = trace.ask(
            self.decide, otherwise={"retrieve": True, "confidence": 0.0}, question=trace.question
        )
        trace.step("gate", observation="retrieve" if gate.retrieve else "answer from memory")
        return bool(gate.retrieve)

    def _from_memory(self, trace: Trace) -> str:
        return trace.answer(self.direct, last=True, question=trace.question)

    def _combined(self, trace: Trace, passage: Passage) -> Candidate:
        reply = trace.ask(
            self.critique,
            otherwise={"answer": "", **_UNREADABLE},
            question=trace.question,
            passage=self._show(passage),
        )
        return self._grade(trace, passage, reply.answer, reply.relevance, reply.support)

    def _per_passage(self, trace: Trace, passages: Sequence[Passage]) -> list[Candidate]:
        def relevant(passage: Passage) -> bool:
            reply = trace.ask(
                self.is_relevant,
                otherwise={"relevance": "relevant", "confidence": 0.0},
                question=trace.question,
                passage=self._show(passage),
            )
            return bool(reply.relevance == "relevant")

        marks = trace.fan_out(relevant, passages)
        kept = [passage for passage, mark in zip(passages, marks, strict=False) if mark]
        return trace.fan_out(lambda p: self._separate(trace, p), kept, calls_each=3)

    def _separate(self, trace: Trace, passage: Passage) -> Candidate:
        shown = self._show(passage)
        answer = trace.answer(self.answer, context=[f"[1] {shown}"], question=trace.question)
        support = trace.ask(
            self.is_supported,
            otherwise={"support": "partial", "confidence": 0.0},
            question=trace.question,
            passage=shown,
            answer=answer,
        ).support
        return self._grade(trace, passage, answer, "relevant", support)

    def _grade(
        self, trace: Trace, passage: Passage, answer: str, relevance: str, support: str
    ) -> Candidate:
        utility = trace.ask(
            self.is_useful, otherwise={"utility": 3}, question=trace.question, answer=answer
        ).utility
        score = (
            self.knobs.w_utility * utility
            + self.knobs.w_support * _SUPPORT[support]
            + self.knobs.w_relevance * (relevance == "relevant")
        )
        return Candidate(answer.strip(), passage.pid, relevance, support, utility, score)

    def _show(self, passage: Passage) -> str:
        return render([passage], max_tokens=self.knobs.context_tokens)[0].removeprefix("[1] ")

    def _note(self, trace: Trace, candidate: Candidate) -> None:
        trace.step(
            "critique",
            observation=candidate.answer,
            pids=(candidate.pid,),
            notes={
                "relevance": candidate.relevance,
                "support": candidate.support,
                "utility": candidate.utility,
                "score": round(candidate.score, 4),
            },
        )

    def _select(self, candidates: Sequence[Candidate]) -> str:
        answered = [c for c in candidates if c.answer] or list(candidates)
        best = max(answered, key=lambda c: c.score)  # the first of equals: retrieval order
        if self.knobs.select == "best":
            return best.answer
        votes: dict[str, float] = {}
        for candidate in answered:
            key = normalise_answer(candidate.answer)
            votes[key] = votes.get(key, 0.0) + candidate.score
        winner = max(votes, key=lambda key: votes[key])
        return next(c.answer for c in answered if normalise_answer(c.answer) == winner)
