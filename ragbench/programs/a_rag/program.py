"""A-RAG: an agent that searches a corpus by keyword, by sentence and by chunk.

Du et al. 2026 (A-RAG). The model chooses among `keyword_search` (counts of exact text), and
`semantic_search` (nearest sentences), which show the matching sentences of at most `k` chunks, and
`chunk_read`, which shows whole chunks; a chunk read before is not shown again. Variants:

- `full`: all three tools.
- `naive`: one tool, which searches embeddings of whole chunks and shows them.
- `no_keyword`, `no_semantic`, `no_read`: one tool less; without `chunk_read` searches show whole
  chunks.

The index is made of the retriever's corpus by `embedder`; how the retriever itself searches is not
used. On a paragraph view a title is part of its text. `backend=native` is the provider's own tool
calling, as published, where the model may ask for up to 20 chunks; it is the default where the LM
can call tools. `backend=typed` asks with `ToolStep`, which works with any LM and can be compiled;
every search shows `k` chunks there. One tool is used per turn, as the paper says; with
`parallel_tools` all that a native turn asks for, as its code does.

After `max_steps` turns, or once the conversation has `token_budget` tokens, an answer is forced:
natively by the same conversation without tools, else from all that was shown. Departures: chunks of
at most `short_words` words are shown whole, since a snippet hides the sentence after its match
(`short_words=0` as published); an answer before anything was shown is asked for again after a
search (`unsearched_answers` as published); a tool called again and again for the same result is
withdrawn, as in react; the oldest steps leave the prompt where they outgrow `context_tokens` or the
LM's own window; and answers are brief by default (`answer_style=free` as published).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, Self

import dspy
from pydantic import Field, model_validator

from ragbench.context import current
from ragbench.errors import ConfigError
from ragbench.ledger import file_call
from ragbench.programs.a_rag.tools import MAX_TOP_K, ChunkTools, Settings
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    Backend,
    BudgetSpentError,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    ToolAsker,
    ToolLoop,
    Trace,
    check_backend,
    predict,
    role_lm,
    tool_predictor,
)
from ragbench.retrievers import Distracting, GranularIndex, PerQuestion, Progress, Retriever
from ragbench.signatures import AnswerFromContext, ToolStep

#: What the agent is told beside its task, and the tools that must be in use for it.
_RULES: tuple[tuple[str, set[str]], ...] = (
    ("Split the question into the facts that it needs, and find them one by one.", set()),
    ("Give keyword_search short exact terms: names and rare words.", {"keyword_search"}),
    (
        "Where keywords find nothing, describe the fact to semantic_search.",
        {"keyword_search", "semantic_search"},
    ),
    ("Read a chunk whole before you rely on a sentence of it.", {"chunk_read"}),
    ("Answer once every fact is found.", set()),
)


class ARAGKnobs(ProgramKnobs):
    """Knobs of `a_rag`."""

    k: int = Field(5, ge=1, le=MAX_TOP_K, description="chunks that a search shows")
    context_tokens: int = Field(
        128_000, ge=100, le=1_000_000, description="tokens of earlier steps shown in one call"
    )
    max_steps: int = Field(15, ge=1, le=50, description="turns at the most")
    token_budget: int = Field(
        128_000, ge=100, le=10_000_000, description="tokens of all steps that force an answer"
    )
    keyword_search: bool = Field(True, description="offer the tool keyword_search")
    semantic_search: bool = Field(True, description="offer the tool semantic_search")
    chunk_read: bool = Field(True, description="offer the tool chunk_read")
    whole_chunks: bool = Field(False, description="semantic_search embeds chunks, not sentences")
    word_boundary: bool = Field(False, description="keywords match whole words alone")
    embedder: str = Field("local", description="local, local:NAME, openai/MODEL or st:NAME")
    embedder_base: str = Field("", description="server of an openai/ embedder, if not OpenAI's")
    backend: Backend = Field("auto", description="how tools are called; auto: native if possible")
    parallel_tools: bool = Field(False, description="use all tools that a native turn asks for")
    prompt: Literal["full", "short"] = Field("full", description="with rules of searching, or not")
    short_words: int = Field(
        120, ge=0, le=10_000, description="chunks of so many words at the most are shown whole"
    )
    unsearched_answers: bool = Field(
        False, description="let an answer stand before anything was shown"
    )
    reasoning_effort: Literal["", "minimal", "low", "medium", "high"] = Field(
        "", description="passed to LMs that reason; blank leaves it to the LM"
    )

    @model_validator(mode="after")
    def _can_search(self) -> Self:
        if not (self.keyword_search or self.semantic_search):
            raise ValueError("keyword_search and semantic_search are both off; leave one on")
        return self

    def tools(self) -> Settings:
        """The part that decides the tools."""
        return Settings(
            keyword_search=self.keyword_search,
            semantic_search=self.semantic_search,
            chunk_read=self.chunk_read,
            whole_chunks=self.whole_chunks,
            word_boundary=self.word_boundary,
            k=self.k,
            short_words=self.short_words,
        )


@PROGRAMS.register("a_rag")
class ARAG(RAGProgram):
    """Use search and reading tools in turns until the answer is found."""

    name = "a_rag"
    family = "agentic"
    paper = "Du et al. 2026"
    calls = "turns (<= max_steps), twice where a thought is repeated, + 1 if forced"
    autonomy = Autonomy("yes", "yes", "yes")
    Knobs = ARAGKnobs
    variants = {  # noqa: RUF012
        "full": {},
        "naive": {"keyword_search": False, "chunk_read": False, "whole_chunks": True},
        "no_keyword": {"keyword_search": False},
        "no_semantic": {"semantic_search": False},
        "no_read": {"chunk_read": False},
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.settings = self.knobs.tools()
        described = self.settings.described()
        step = ToolStep
        if self.knobs.prompt == "full":
            rules = " ".join(rule for rule, needed in _RULES if needed <= set(described))
            step = ToolStep.with_instructions(f"{ToolStep.instructions}\n\n{rules}")
        self.act = tool_predictor(step, described, like=ToolStep)
        self.conclude = predict(AnswerFromContext)

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """Do nothing if the LM of the role "reason" can take the program's turns.

        Raises:
            ConfigError: the native backend with an LM that cannot call tools.
        """
        check_backend(self.name, self.knobs.backend, role_lms.get("reason", lm))

    def prepare(self, progress: Progress | None = None) -> None:
        """Embed the pooled corpus, and file the calls; a question's own passages come with it.

        Raises:
            ConfigError: the retriever is `distracting`, which the tools do not search with.
        """
        if isinstance(getattr(self.retriever, "whole", self.retriever), Distracting):
            raise ConfigError(
                f"{self.name} searches the corpus by tools of its own, which --retriever "
                "distracting does not reach; use another retriever or another program"
            )
        if isinstance(self.retriever, PerQuestion) or not self.knobs.semantic_search:
            return
        index = self.index_of(self.retriever)
        before = len(index.index_calls)
        (index.build_chunks if self.knobs.whole_chunks else index.build_sentences)(progress)
        for call in index.index_calls[before:]:
            file_call(call)

    def index_of(self, retriever: Retriever) -> GranularIndex:
        """The index of the corpus that `retriever` searches."""
        return GranularIndex.of(
            retriever.corpus, embedder=self.knobs.embedder, api_base=self.knobs.embedder_base
        )

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Turns until one answers, then a forced answer if none did."""
        self.check_lms(dspy.settings.lm, current().role_lms)
        knobs = self.knobs
        box = ChunkTools(trace, self.index_of(trace.retriever), self.settings)
        asker = ToolAsker(
            self.act,
            box,
            backend=knobs.backend,
            context_tokens=knobs.context_tokens,
            style=knobs.answer_style,
            parallel=knobs.parallel_tools,
            config=self._effort(trace, "reason"),
        )
        loop = ToolLoop(
            box,
            asker,
            max_steps=knobs.max_steps,
            token_budget=knobs.token_budget,
            parallel=knobs.parallel_tools and asker.native,
            unsearched_answers=knobs.unsearched_answers,
        )
        reason: StopReason
        try:
            answer, reason = loop.run()
        except BudgetSpentError:
            answer, reason = "", "budget"
        answer = answer or loop.settled(self._concluded(box, loop, asker))
        return trace.prediction(answer, reason)

    def _concluded(self, box: ChunkTools, loop: ToolLoop, asker: ToolAsker) -> str:
        """An answer from all that was shown; the question is searched first if nothing was."""
        if box.shown_nothing:
            with suppress(BudgetSpentError):
                loop.search_question()
        answer = asker.conclude(loop.done) if asker.native else ""
        config = self._effort(box.trace, "answer") if not answer else {}
        return answer or box.trace.answer(
            self.conclude,
            last=True,
            context=box.context(max_tokens=self.knobs.context_tokens),
            question=box.trace.question,
            **({"config": config} if config else {}),
        )

    def _effort(self, trace: Trace, role: str) -> dict[str, Any]:
        """What asks the LM of `role` for the reasoning effort, where it reasons at all."""
        effort = self.knobs.reasoning_effort
        if not effort:
            return {}
        if not role_lm(role).supports_reasoning:
            trace.count("reasoning_effort_ignored")
            return {}
        return {"reasoning_effort": effort}
