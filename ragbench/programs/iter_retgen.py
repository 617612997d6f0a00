"""ITER-RETGEN: search with the last generation and the question, generate again, and repeat.

Shao et al. 2023 (arXiv:2305.15294). The first query is the question. Each later query is the entire
previous generation (reasoning and answer), then the question. Each generation reads only the
passages of its search. `paper`: two rounds of a chain of thought, five passages. `flash` is the
FlashRAG version: three rounds without reasoning, question before generation. If a round finds the
same passages as the previous one, the reply would be the same, so the program ends.
"""

from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, bounded, one_line
from ragbench.programs.core.program import Reader, reading
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerFromContext


class IterRetGenKnobs(ProgramKnobs):
    """Knobs of `iter_retgen`."""

    rounds: int = bounded(2, 1, 20, "rounds of a search and a generation")
    reader: Reader = Field("cot", description="reason before the answer?")
    query_order: Literal["generation_first", "question_first"] = Field(
        "generation_first", description="order of the texts in a query"
    )


@PROGRAMS.register("iter_retgen")
class IterRetGen(RAGProgram[IterRetGenKnobs]):
    """Answer from passages, search with that answer, and answer again."""

    variants = {  # noqa: RUF012
        "paper": {},
        "flash": {"rounds": 3, "reader": "predict", "query_order": "question_first"},
    }

    def make_predictors(self) -> None:
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Search and generate until a search finds the same passages. Return the last answer."""
        answer = ""
        generation = ""
        pids_before: list[str] | None = None
        reason: core.StopReason = "answered"
        for number in range(1, self.knobs.rounds + 1):
            query = self._query(trace.question, generation)
            try:
                passages = trace.search(query, k=self.knobs.k)
                pids = [passage.pid for passage in passages]
                if pids == pids_before:
                    trace.step("search", input=query, of=passages)
                    reason = "no_progress"
                    break
                pids_before = pids
                is_last = number == self.knobs.rounds
                answer, generation = self._generated(trace, query, passages, is_last=is_last)
            except core.BudgetSpentError:
                if not answer:
                    raise
                reason = "budget"
                break
        return trace.prediction(answer, reason)

    def _query(self, question: str, generation: str) -> str:
        if self.knobs.query_order == "question_first":
            return f"{question} {generation}".strip()
        return f"{generation} {question}".strip()

    def _generated(
        self, trace: Trace, query: str, passages: list[Passage], *, is_last: bool
    ) -> tuple[str, str]:
        """Return the answer from the passages, and the entire generated text."""
        reply = trace.ask(self.answer, last=is_last, context=self.as_context(passages))
        answer = reply.answer
        reasoning = one_line(reply.get("reasoning", ""))
        trace.step("generate", input=query, thought=reasoning, observation=answer, of=passages)
        return answer, f"{reasoning} {answer}".strip()
