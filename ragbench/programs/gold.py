"""The upper bound: the reader of `vanilla` with the gold passages of the data.

It measures the reader under a perfect search. A real system does not know the gold passages, so
tables mark it (`reads_gold`), and neither `recommend` nor `choose` recommends it. Data without gold
passages is rejected. A single question without any is read without passages.
"""

import dspy
from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace
from ragbench.programs.core.program import Reader, reading
from ragbench.programs.core.question_state import example_of
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerFromContext


class GoldKnobs(ProgramKnobs):
    """Knobs of `gold`."""

    reader: Reader = Field("predict", description="reason before the answer?")


@PROGRAMS.register("gold")
class GoldRAG(RAGProgram[GoldKnobs]):
    """Answer from the passages."""

    chooses = False
    needs_gold = True

    def make_predictors(self) -> None:
        self.answer = reading(AnswerFromContext, self.knobs.reader)

    def solve(self, trace: Trace) -> dspy.Prediction:
        passages = self._gold(trace)
        if passages:
            trace.count("reads_gold")
            trace.search_by(lambda: passages, trace.question, k=len(passages))
        return self.finish(trace, self.answer, passages)

    def _gold(self, trace: Trace) -> list[Passage]:
        """Return the gold passages of the question, in the order of the data."""
        example = example_of(trace.question)
        if example is None:
            return []
        corpus = trace.retriever.corpus
        passages = []
        for pid in example.get("gold_pids") or ():
            if pid in corpus.positions:
                passages.append(corpus[corpus.positions[pid]])
        return passages
