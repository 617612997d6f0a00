"""The upper bound: the reader of `vanilla` over the passages that the data marks as gold.

What reading alone is worth where a search is perfect. It is told what no system knows, so it is
marked in tables (`reads_gold`), and neither `recommend` nor `choose` advises it. Data without gold
passages is refused; a single question without any is read from nothing (`no_gold`).
"""

import dspy
from pydantic import Field

from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace
from ragbench.programs.core.asked import example_of
from ragbench.programs.core.program import Reader, reading
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
        else:
            trace.count("no_gold")
        return self.finish(trace, self.answer, passages)

    def _gold(self, trace: Trace) -> list[Passage]:
        """The gold passages of the question, in the order of the data; empty where none is told."""
        example = example_of(trace.question)
        if example is None:
            return []
        corpus = trace.retriever.corpus
        passages = []
        for pid in example.get("gold_pids") or ():
            if pid in corpus.positions:
                passages.append(corpus[corpus.positions[pid]])
        return passages
