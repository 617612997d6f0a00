"""MemoRAG (lite): clues and simpler questions recalled from gists of the corpus are searched with.

Qian et al. 2024 (arXiv:2409.05591), in the form without a memory model: gists by an LM are the
memory (`ragbench.retrievers.lm_index.tree`; those nearest to the question where not all fit). From
it the model recalls clues and writes surrogate questions, which are searched with beside the
question; what is found is read in the order of the corpus. `no_memory` has neither gists nor clues.
"""

from collections.abc import Sequence
from typing import Any

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, ProgramKnobs, Trace, predict
from ragbench.programs.core.indexed import IndexProgram
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.lm_index import GistIndex, GistSettings, LMIndex
from ragbench.signatures import AnswerFromContext, RecallClues, SurrogateQuestions

#: Words that a clue must have more than, to be searched with.
_SHORT = 3


class MemoRAGKnobs(GistSettings, ProgramKnobs):
    """Knobs of `memo_rag`."""

    k: int = Field(3, ge=1, le=100, description="passages per query")
    context_tokens: int = Field(8000, ge=100, le=1_000_000, description="tokens of passages shown")
    memory: bool = Field(True, description="gists of the corpus, and clues from them")
    memory_tokens: int = Field(8000, ge=100, le=1_000_000, description="tokens of gists shown")


@PROGRAMS.register("memo_rag")
class MemoRAG(IndexProgram[MemoRAGKnobs]):
    """Recall clues from gists of the corpus, search with them, then answer."""

    name = "memo_rag"
    family = "workflow"
    paper = "arXiv:2409.05591"
    calls = "3; 2 without memory (index: one per 4,096 tokens of the corpus)"
    Index = GistIndex
    variants = {"lite": {}, "no_memory": {"memory": False}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.memory:
            self.recall = predict(RecallClues)
        self.ask_more = predict(SurrogateQuestions)
        self.answer = predict(AnswerFromContext)

    @property
    def index_kind(self) -> type[LMIndex]:
        if self.knobs.memory:
            return GistIndex
        return LMIndex

    def solve(self, trace: Trace) -> dspy.Prediction:
        index = self.opened(trace)
        memory: list[str] = []
        if isinstance(index, GistIndex):
            memory = index.memory(trace.question, max_tokens=self.knobs.memory_tokens)
        queries = self._queries(trace, memory)
        rankings = [self._search(trace, index, query) for query in queries]
        places = index.corpus.positions
        passages = list({p.pid: p for hits in rankings for p in hits}.values())
        # One that a wrapper made up has no place in the corpus, and comes last.
        passages.sort(key=lambda passage: places.get(passage.pid, len(places)))
        answer = self.answer_from(trace, self.answer, passages)
        return trace.prediction(answer, "answered")

    def _search(self, trace: Trace, index: LMIndex, query: str) -> list[Passage]:
        passages = self.find(trace, lambda: index.search(query, k=self.knobs.k), query)
        trace.step("search", input=query, of=passages)
        return passages

    def _queries(self, trace: Trace, memory: Sequence[str]) -> list[str]:
        written: list[str] = []
        inputs: dict[str, Any] = {"memory": memory}
        if self.knobs.memory:
            reply = trace.ask(self.recall, otherwise={"clues": []}, **inputs)
            written += core.distinct(reply.clues)
        reply = trace.ask(self.ask_more, otherwise={"questions": []}, **inputs)
        written += core.distinct(reply.questions)
        written = [text for text in written if len(text.split()) > _SHORT]
        trace.step("plan", observation="\n".join(written), notes={"gists": len(memory)})
        return core.distinct([*written, trace.question])
