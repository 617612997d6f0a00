"""Adaptive-RAG: choose no search, one search or a loop of searches for each question.

Jeong et al. 2024 (arXiv:2403.14403). A classifier predicts the effort that the question needs. Then
the program answers from memory, from one search, or with IRCoT and a reader of its paragraphs. The
paper trains a T5 on silver labels (the simplest correct strategy). Here the LM classifies. `gpt`
has the paper's k for GPT-3.5, and reasons before it answers. `flan` has those for FLAN-T5, and
answers directly. In `chain` the chain of the loop is the answer.
"""

from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, bounded, predict
from ragbench.programs.core.program import Reader, reading
from ragbench.signatures import AnswerFromContext, DirectAnswer, QuestionComplexity


class AdaptiveRAGKnobs(ProgramKnobs):
    """Knobs of `adaptive_rag`."""

    k: int = bounded(6, 1, 100, "passages of a single search")
    loop_k: int = bounded(3, 1, 100, "passages per search of the loop")
    route: Literal["ask", "none", "single", "multi"] = Field(
        "ask", description="effort: ask the LM, or the same for every question"
    )
    max_steps: int = bounded(10, 1, 50, "maximum number of sentences of the loop")
    reader: Reader = Field("cot", description="reason before the answer?")
    loop_reader: bool = Field(True, description="answer with a reader after the loop")


@PROGRAMS.register("adaptive_rag")
class AdaptiveRAG(RAGProgram[AdaptiveRAGKnobs]):
    """Choose how much to search, then answer in that way."""

    variants = {  # noqa: RUF012
        "gpt": {},
        "flan": {"k": 15, "loop_k": 6, "reader": "predict"},
        "chain": {"loop_reader": False},
    }

    def make_predictors(self) -> None:
        route = self.knobs.route
        if route == "ask":
            self.choose = predict(QuestionComplexity)
        if route in ("ask", "none"):
            self.direct = reading(DirectAnswer, self.knobs.reader)
        if route != "none":
            self.single = reading(AnswerFromContext, self.knobs.reader)
        if route in ("ask", "multi"):
            self.multi: RAGProgram = PROGRAMS.get("ircot")(
                self.retriever,
                variant="paper",
                separate_reader=self.knobs.loop_reader,
                reader=self.knobs.reader,
                k=self.knobs.loop_k,
                max_steps=self.knobs.max_steps,
                context_tokens=self.knobs.context_tokens,
            )

    def solve(self, trace: Trace) -> dspy.Prediction:
        if (effort := self.knobs.route) == "ask":
            reply = trace.ask(self.choose, otherwise={"effort": "multi"})
            effort = reply.effort
            trace.step("route", observation=effort)
        if effort == "none":
            answer = trace.answer(self.direct, last=True)
            return trace.prediction(answer, "direct")
        if effort == "multi":
            return self.multi.solve(trace)
        return self.finish(trace, self.single, trace.search(trace.question, k=self.knobs.k))

    def force(self, trace: Trace) -> str:
        if self.knobs.route == "none":
            return trace.answer(self.direct, last=True)
        return self.answer_from(trace, self.single, trace.passages)
