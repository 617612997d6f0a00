"""MemoRAG (lite): search with clues and simpler questions recalled from gists of the corpus.

Qian et al. 2024 (arXiv:2409.05591), without a memory model: gists by an LM are the memory
(`ragbench.retrievers.lm_index.tree`). If not all gists fit, those nearest to the question are used.
From it the model recalls clues and writes surrogate questions. They are queries in addition to the
question. The answer reads the passages in the order of the corpus. `no_memory` has neither gists
nor clues.
"""

from collections.abc import Sequence
from itertools import chain

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, ProgramKnobs, Trace, bounded, predict
from ragbench.programs.core.indexed import IndexProgram
from ragbench.retrievers import Passage
from ragbench.retrievers.lm_index import GistIndex, GistSettings, LMIndex
from ragbench.signatures import AnswerFromContext, RecallClues, SurrogateQuestions

#: Words that a clue must have more than, to be searched with.
_SHORT = 3
#: Maximum number of tokens of gists shown.
_MEMORY_TOKENS = 8000


class MemoRAGKnobs(GistSettings, ProgramKnobs):
    """Knobs of `memo_rag`."""

    k: int = bounded(3, 1, 100, "passages per query")
    context_tokens: int = bounded(8000, 100, 1_000_000, "tokens of passages in context")
    memory: bool = Field(True, description="gists of the corpus, and clues from them")


@PROGRAMS.register("memo_rag")
class MemoRAG(IndexProgram[MemoRAGKnobs]):
    """Recall clues from gists of the corpus, search with them, then answer."""

    Index = GistIndex
    variants = {"lite": {}, "no_memory": {"memory": False}}  # noqa: RUF012

    def make_predictors(self) -> None:
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
            memory = index.memory(trace.question, max_tokens=_MEMORY_TOKENS)
        queries = self._queries(trace, memory)
        rankings = [self._search(trace, index, query) for query in queries]
        places = index.corpus.positions
        passages = core.each_once(chain.from_iterable(rankings))
        # Passages that a wrapper created are not in the corpus, and come last.
        passages.sort(key=lambda passage: places.get(passage.pid, len(places)))
        answer = self.answer_from(trace, self.answer, passages)
        return trace.prediction(answer, "answered")

    def _search(self, trace: Trace, index: LMIndex, query: str) -> list[Passage]:
        passages = self.find(trace, lambda: index.search(query, k=self.knobs.k), query)
        trace.step("search", input=query, of=passages)
        return passages

    def _queries(self, trace: Trace, memory: Sequence[str]) -> list[str]:
        written: list[str] = []
        if self.knobs.memory:
            written += core.distinct(trace.ask(self.recall, memory=memory).clues)
        reply = trace.ask(self.ask_more, memory=memory)
        written += core.distinct(reply.questions)
        written = [text for text in written if len(text.split()) > _SHORT]
        trace.step("plan", observation="\n".join(written), notes={"gists": len(memory)})
        return core.distinct([*written, trace.question])
