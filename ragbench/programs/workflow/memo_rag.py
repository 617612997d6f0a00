"""MemoRAG (lite): clues and simpler questions recalled from gists of the corpus are searched with.

Qian et al. 2024 (arXiv:2409.05591). Variants: `lite`, their form without a memory model: gists of
4,096 tokens each, by an LM, are the memory (`ragbench.retrievers.graph.gists`); from it the model
recalls clues and writes surrogate questions, which are searched with beside the question, and the
passages found are read in the order of the corpus. `no_memory` writes surrogate questions from the
question alone, with neither gists nor clues.

Departures: the memory model with its compressed cache is out of reach of an API; gists that do not
fit `memory_tokens` are those nearest to the question; passages are those of the corpus, where their
code cuts pieces of 512 tokens; clues and surrogates are `max_queries` each at the most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from pydantic import Field

from ragbench.context import current
from ragbench.programs.core import (
    PROGRAMS,
    Described,
    IndexKnobs,
    IndexProgram,
    Trace,
    distinct,
    is_answer,
    predict,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.graph import GistIndex
from ragbench.signatures import (
    AnswerFromContext,
    RecallClues,
    Summarize,
    SurrogateQuestions,
    role_of,
)
from ragbench.tokens import estimate_tokens, first_tokens

_GISTS = Described("index", Summarize.__name__, role_of(Summarize))
#: Words that a clue must have more than, to be searched with.
_SHORT = 3
#: Passages that tell the size of a corpus, for a rehearsal.
_SAMPLE = 100


class MemoRAGKnobs(IndexKnobs):
    """Knobs of `memo_rag`."""

    k: int = Field(3, ge=1, le=100, description="passages per query")
    context_tokens: int = Field(
        8000, ge=100, le=1_000_000, description="tokens of passages shown in one call"
    )
    memory: bool = Field(True, description="gists of the corpus, and clues from them")
    memory_tokens: int = Field(8000, ge=100, le=1_000_000, description="tokens of gists shown")
    stretch_tokens: int = Field(4096, ge=50, le=100_000, description="tokens of a gist's passages")
    gist_words: int = Field(380, ge=10, le=5000, description="words of a gist (512 tokens)")
    max_queries: int = Field(5, ge=1, le=50, description="clues, and surrogates, at the most")
    draft: bool = Field(False, description="search with an answer from memory as well")


@PROGRAMS.register("memo_rag")
class MemoRAG(IndexProgram):
    """Recall clues from gists of the corpus, search with them, then answer."""

    name = "memo_rag"
    family = "workflow"
    paper = "arXiv:2409.05591"
    calls = "3; 4 with a draft; 2 without memory (index: one per 4,096 tokens of the corpus)"
    Knobs = MemoRAGKnobs
    Index = GistIndex
    variants = {"lite": {}, "no_memory": {"memory": False}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.memory:
            self.recall = predict(RecallClues)
        self.ask_more = predict(SurrogateQuestions)
        if self.knobs.draft:
            self.guess = predict(AnswerFromContext)
        self.answer = predict(AnswerFromContext)

    def other_calls(self) -> Sequence[Described]:
        """The gists."""
        return (_GISTS,) if self.knobs.memory else ()

    def index_settings(self) -> Mapping[str, Any]:
        """How much a gist is of, and its length."""
        stretch = self.knobs.stretch_tokens if self.knobs.memory else 0
        return {"stretch_tokens": stretch, "gist_words": self.knobs.gist_words}

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Queries from memory, a search each, one reading."""
        index = None if current().rehearsal else self.opened(trace)
        if index is None:
            memory = self._made_up(trace)
        else:
            memory = index.memory(trace.question, max_tokens=self.knobs.memory_tokens)
        queries = self._queries(trace, memory)
        rankings = [self._search(trace, index, query) for query in queries]
        passages = list({p.pid: p for hits in rankings for p in hits}.values())
        if index is not None:
            places = index.corpus.positions
            # One that a wrapper made up has no place in the corpus, and comes last.
            passages.sort(key=lambda passage: places.get(passage.pid, len(places)))
        answer = self.answer_from(trace, self.answer, passages)
        return trace.prediction(answer, "answered")

    def force(self, trace: Trace) -> str:
        """An answer from the passages found, if any."""
        return self.answer_from(trace, self.answer, trace.passages)

    def _made_up(self, trace: Trace) -> list[str]:
        """As much memory as the corpus may give, for a rehearsal: its first passages."""
        texts = [str(passage) for passage in trace.retriever.corpus[:_SAMPLE]]
        if not self.knobs.memory or not texts:
            return []
        size = sum(map(estimate_tokens, texts)) / len(texts) * len(trace.retriever.corpus)
        gists = math.ceil(size / self.knobs.stretch_tokens)
        tokens = min(gists * self.knobs.gist_words * 4 // 3, self.knobs.memory_tokens)
        return [first_tokens(" ".join(texts), tokens)]

    def _search(self, trace: Trace, index: GistIndex | None, query: str) -> list[Passage]:
        k = self.knobs.k
        if index is None:
            return trace.search(query, k=k)
        passages = trace.search_by(
            lambda: trace.presented(query, index.search(query, k=k)), query, k=k
        )
        trace.step("search", input=query, pids=tuple(passage.pid for passage in passages))
        return passages

    def _queries(self, trace: Trace, memory: list[str]) -> list[str]:
        """What is searched with: clues, surrogate questions, a draft, and the question itself."""
        most, written = self.knobs.max_queries, []
        if self.knobs.memory:
            nothing: dict[str, Any] = {"clues": []}
            reply = trace.ask(
                self.recall, otherwise=nothing, memory=memory, question=trace.question
            )
            clues = [clue for clue in distinct(reply.clues) if len(clue.split()) > _SHORT]
            written += clues[:most]
        reply = trace.ask(
            self.ask_more, otherwise={"questions": []}, memory=memory, question=trace.question
        )
        written += distinct(reply.questions)[:most]
        if self.knobs.draft:
            draft = trace.ask(
                self.guess, otherwise={"answer": ""}, context=memory, question=trace.question
            ).answer
            written += [draft] if is_answer(str(draft or "")) else []
        trace.step("plan", observation="\n".join(written), notes={"gists": len(memory)})
        return distinct([*written, trace.question])
