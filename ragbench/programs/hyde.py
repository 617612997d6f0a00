"""HyDE: search with hypothetical passages that the model writes, then answer.

Gao et al. 2022 (arXiv:2212.10496), like its published code. The model writes eight passages at
temperature 0.7. The query is the mean of their vectors and the question's. Only `--retriever dense`
searches with a vector. For any other retriever, each text is a separate query, and reciprocal rank
fusion merges the rankings. A reader answers, as in the other baselines. The paper itself ends at
retrieval.
"""

from collections.abc import Sequence

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, bounded, predict
from ragbench.programs.core.replies import sampling
from ragbench.retrievers import Dense, Passage
from ragbench.signatures import AnswerFromContext, WritePassage


class HyDEKnobs(ProgramKnobs):
    """Knobs of `hyde`."""

    n_passages: int = bounded(8, 1, 32, "hypothetical passages for the question")
    temperature: float = bounded(0.7, 0, 2, "temperature of the calls that write them")
    include_original: bool = Field(True, description="search with the question as well")


@PROGRAMS.register("hyde")
class HyDE(RAGProgram[HyDEKnobs]):
    """Make up passages that answer the question, search with them, then answer."""

    def make_predictors(self) -> None:
        self.imagine = predict(WritePassage)
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        texts = self._texts(trace)
        passages = self._found(trace, texts)
        return self.finish(trace, self.answer, passages)

    def _texts(self, trace: Trace) -> list[str]:
        """Return the search queries: the hypothetical passages and the question."""
        samples = range(1, self.knobs.n_passages + 1)
        written = trace.fan_out(lambda sample: self._imagined(trace, sample), samples)
        made_up = core.distinct(written)
        trace.step("imagine", observation="\n".join(made_up))
        if self.knobs.include_original or not made_up:
            return [trace.question, *made_up]
        return made_up

    def _imagined(self, trace: Trace, sample: int) -> str:
        """Write one passage. Each sample has a separate seed and cache entry."""
        config = sampling(sample, self.knobs.temperature)
        return str(trace.ask(self.imagine, config=config).passage)

    def _found(self, trace: Trace, texts: Sequence[str]) -> list[Passage]:
        """Return the `k` passages nearest to the mean of `texts`, or of the fused rankings."""
        k = self.knobs.k
        retriever = trace.retriever
        if isinstance(retriever, Dense):
            return trace.search_by(lambda: retriever.search_mean(texts, k=k), "\n".join(texts), k=k)
        rankings = trace.search_many(texts, k=k)
        return core.fuse(rankings)[:k]
