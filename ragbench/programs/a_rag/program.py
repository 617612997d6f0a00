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

After `max_steps` turns, or once the conversation has `token_budget` tokens, the same conversation
answers without tools. The oldest steps leave the prompt where they outgrow `context_tokens` or the
LM's own window; answers are brief by default (`answer_style=free` as published). `guards` lists
what is added to help a model (see `ragbench.programs.core.tools`); `short_words` shows chunks of so
many words whole, since a snippet hides the sentence after its match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import dspy
from pydantic import Field, field_validator, model_validator

from ragbench.context import current, making
from ragbench.errors import ConfigError
from ragbench.ledger import file_call
from ragbench.programs.a_rag.tools import MAX_TOP_K, ChunkTools, Settings
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    Trace,
    is_answer,
)
from ragbench.programs.core.tools import (
    DEFAULT_GUARDS,
    Backend,
    Guard,
    ToolAsker,
    ToolLoop,
    check_backend,
    guards_of,
    tool_predictor,
)
from ragbench.programs.core.trace import role_lm
from ragbench.retrievers import Distracting, GranularIndex, PerQuestion, Progress, Retriever
from ragbench.signatures import ToolStep

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
        0, ge=0, le=10_000, description="chunks of so many words at the most are shown whole"
    )
    guards: tuple[Guard, ...] = Field(
        DEFAULT_GUARDS, description="help for a model, by name; false: none, true: all"
    )
    reasoning_effort: Literal["", "minimal", "low", "medium", "high"] = Field(
        "", description="passed to LMs that reason; blank leaves it to the LM"
    )

    _guards = field_validator("guards", mode="before")(guards_of)

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
class ARAG(RAGProgram[ARAGKnobs]):
    """Use search and reading tools in turns until the answer is found."""

    name = "a_rag"
    family = "agentic"
    paper = "Du et al. 2026"
    calls = "turns (<= max_steps) + 1 if forced"
    autonomy = Autonomy("yes", "yes", "yes")
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
        names = self.settings.names
        step = ToolStep
        if self.knobs.prompt == "full":
            rules = " ".join(rule for rule, needed in _RULES if needed <= set(names))
            step = ToolStep.with_instructions(f"{ToolStep.instructions}\n\n{rules}")
        self.act = tool_predictor(step, names, like=ToolStep)

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
        with making("vectors of chunks" if self.knobs.whole_chunks else "vectors of sentences"):
            (index.build_chunks if self.knobs.whole_chunks else index.build_sentences)(progress)
        for call in index.index_calls[before:]:
            file_call(call)

    def index_of(self, retriever: Retriever) -> GranularIndex:
        """The index of the corpus that `retriever` searches."""
        return GranularIndex.of(
            retriever.corpus, embedder=self.knobs.embedder, api_base=self.knobs.embedder_base
        )

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Turns until one answers, then an answer of the same conversation if none did."""
        self.check_lms(dspy.settings.lm, current().role_lms)
        knobs = self.knobs
        box = ChunkTools(trace, self.index_of(trace.retriever), self.settings)
        asker = ToolAsker(
            self.act,
            box,
            backend=knobs.backend,
            context_tokens=knobs.context_tokens,
            guards=knobs.guards,
            parallel=knobs.parallel_tools,
            config=self._effort(trace),
        )
        loop = ToolLoop(
            box,
            asker,
            max_steps=knobs.max_steps,
            token_budget=knobs.token_budget,
            parallel=knobs.parallel_tools and asker.native,
        )
        answer: str
        reason: StopReason
        try:
            answer, reason = loop.run()
        except BudgetSpentError:
            answer, reason = "", "budget"
        answer = answer or asker.conclude(loop.done)
        if loop.guess and not is_answer(answer):
            answer = loop.guess
        return trace.prediction(answer, reason)

    def _effort(self, trace: Trace) -> dict[str, Any]:
        """What asks the LM for the reasoning effort, where it reasons at all."""
        effort = self.knobs.reasoning_effort
        if not effort:
            return {}
        if not role_lm("reason").supports_reasoning:
            trace.count("reasoning_effort_ignored")
            return {}
        return {"reasoning_effort": effort}
