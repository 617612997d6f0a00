"""Adaptive-RAG: choose per question between no search, one search and a loop of searches.

Jeong et al. 2024 (arXiv:2403.14403). A classifier names the effort that the question needs, and the
program of that effort answers: `direct`, `vanilla` or `ircot`. The paper trains a T5 on silver
labels (the simplest strategy that was right); here the LM is asked, and compiling the program with
demonstrations is what comes nearest. `route` fixes the choice; `route=multi` and `route=single`
are the paper's baselines. Its oracle can be had by scoring three fixed runs question by question,
and is no system to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    Trace,
    predict,
)
from ragbench.retrievers import Retriever
from ragbench.signatures import QuestionComplexity


class AdaptiveRAGKnobs(ProgramKnobs):
    """Knobs of `adaptive_rag`."""

    route: Literal["ask", "none", "single", "multi"] = Field(
        "ask", description="choose the effort by the LM, or take the same for every question"
    )
    loop: Literal["seed", "paper", "flash"] = Field(
        "paper", description="variant of ircot that multi is"
    )
    max_steps: int = Field(10, ge=1, le=50, description="sentences of the loop at the most")


@PROGRAMS.register("adaptive_rag")
class AdaptiveRAG(RAGProgram):
    """Choose how much to search, then answer in that way."""

    name = "adaptive_rag"
    family = "workflow"
    paper = "arXiv:2403.14403"
    calls = "1 + 1 without or with one search; 1 + those of ircot (<= max_steps + 1)"
    autonomy = Autonomy("no", "partly", "partly")
    Knobs = AdaptiveRAGKnobs

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        shared = {name: getattr(self.knobs, name) for name in ("k", "context_tokens")}
        if self.knobs.route == "ask":
            self.choose = predict(QuestionComplexity)
        ways: dict[str, Callable[[], RAGProgram]] = {
            "none": lambda: PROGRAMS.get("direct")(retriever),
            "single": lambda: PROGRAMS.get("vanilla")(retriever, **shared),
            "multi": lambda: PROGRAMS.get("ircot")(
                retriever, variant=self.knobs.loop, max_steps=self.knobs.max_steps, **shared
            ),
        }
        for effort, make in ways.items():
            if self.knobs.route in ("ask", effort):
                setattr(self, effort, make())

    def solve(self, trace: Trace) -> dspy.Prediction:
        """The choice, and what it says."""
        effort = self._effort(trace)
        prediction: dspy.Prediction = self._way(effort).solve(trace)
        if effort == "none":
            prediction.stop_reason = "direct"
        return prediction

    def force(self, trace: Trace) -> str:
        """The forced answer of the way that was taken; from one reading where none was yet."""
        taken = [step.observation for step in trace.steps if step.action == "route"]
        way = taken[0] if taken else "single" if self.knobs.route == "ask" else self.knobs.route
        return self._way(way).force(trace)

    def _way(self, effort: str) -> RAGProgram:
        way: RAGProgram = getattr(self, effort)
        return way

    def _effort(self, trace: Trace) -> str:
        if self.knobs.route != "ask":
            return str(self.knobs.route)
        reply = trace.ask(self.choose, otherwise={"effort": "multi"}, question=trace.question)
        trace.step("route", observation=reply.effort)
        return str(reply.effort)
