"""Multi-query RAG: write several queries for the question, search with all, fuse, and read once.

The flow is LookaheadRAG's baseline, which asks for diverse search queries. `mode=paraphrase` asks
for paraphrases of the question, like RAG-Fusion (Rackauckas 2024, arXiv:2402.03367), whose fusion
this is. If a reply cannot be parsed, the question is the only query, even if `include_original` is
off.
"""

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    distinct,
    predict,
)
from ragbench.programs.core.text import Fusion, one_line
from ragbench.signatures import QUERY_KINDS, AnswerFromContext, ExpandQueries, QueryMode


class MultiQueryKnobs(ProgramKnobs):
    """Knobs of `multi_query`."""

    k: int = bounded(3, 1, 100, "passages per query")
    n_queries: int = bounded(3, 1, 20, "queries written for the question")
    include_original: bool = Field(True, description="search with the question as well")
    mode: QueryMode = Field("diverse", description="kind of queries written")
    fusion: Fusion = Field("rrf", description="sum of reciprocal ranks, or best score")
    max_passages: int = bounded(10, 1, 1000, "passages kept after fusion")
    temperature: float = bounded(0.3, 0, 2, "of the call that writes the queries")


@PROGRAMS.register("multi_query")
class MultiQueryRAG(RAGProgram[MultiQueryKnobs]):
    """Search with several wordings of the question, then answer from the fused passages."""

    def make_predictors(self) -> None:
        self.expand = predict(ExpandQueries, temperature=self.knobs.temperature)
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        queries = self._queries(trace)
        rankings = trace.search_many(queries, k=self.knobs.k)
        passages = core.fuse(rankings, fusion=self.knobs.fusion)[: self.knobs.max_passages]
        return self.finish(trace, self.answer, passages)

    def _queries(self, trace: Trace) -> list[str]:
        kind = QUERY_KINDS[self.knobs.mode]
        most = self.knobs.n_queries
        reply = trace.ask(self.expand, kind=kind, n=most)
        written = list(map(one_line, reply.queries[:most]))
        trace.step("plan", observation="\n".join(written))
        if self.knobs.include_original:
            queries = [trace.question]
        else:
            queries = []
        return distinct([*queries, *written]) or [trace.question]
