"""Multi-query RAG: write a few queries for the question, search with all, fuse, and read once.

The flow of LookaheadRAG's baseline, which asks for diverse search queries; `mode=paraphrase` asks
for the question in other words, as RAG-Fusion does (Rackauckas 2024, arXiv:2402.03367), whose
fusion this is. A reply that cannot be parsed leaves the question
alone as the query, even if `include_original` is off.
"""

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, distinct, predict
from ragbench.programs.core.text import Fusion
from ragbench.retrievers import Retriever
from ragbench.signatures import QUERY_KINDS, AnswerFromContext, ExpandQueries, QueryMode


class MultiQueryKnobs(ProgramKnobs):
    """Knobs of `multi_query`."""

    k: int = Field(3, ge=1, le=100, description="passages per query")
    n_queries: int = Field(3, ge=1, le=20, description="queries written for the question")
    include_original: bool = Field(True, description="search with the question as well")
    mode: QueryMode = Field("diverse", description="kind of queries written")
    fusion: Fusion = Field("rrf", description="by summed reciprocal ranks or the best score")
    max_passages: int = Field(10, ge=1, le=1000, description="passages kept after fusion")
    temperature: float = Field(0.3, ge=0, le=2, description="of the call that writes the queries")


@PROGRAMS.register("multi_query")
class MultiQueryRAG(RAGProgram[MultiQueryKnobs]):
    """Search with several wordings of the question, then answer from the fused passages."""

    name = "multi_query"
    family = "workflow"
    paper = "arXiv:2402.03367"
    calls = "2"

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.expand = predict(ExpandQueries, temperature=self.knobs.temperature)
        self.answer = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        queries = self._queries(trace)
        rankings = trace.search_many(queries, k=self.knobs.k)
        passages = core.fuse(rankings, fusion=self.knobs.fusion)[: self.knobs.max_passages]
        answer = self.answer_from(trace, self.answer, passages)
        return trace.prediction(answer, "answered", passages=passages)

    def _queries(self, trace: Trace) -> list[str]:
        kind = QUERY_KINDS[self.knobs.mode]
        most = self.knobs.n_queries
        reply = trace.ask(self.expand, otherwise={"queries": []}, kind=kind, n=most)
        written = [" ".join(query.split()) for query in reply.queries[:most]]
        trace.step("plan", observation="\n".join(written))
        if self.knobs.include_original:
            queries = [trace.question]
        else:
            queries = []
        return distinct([*queries, *written]) or [trace.question]
