"""A-RAG: an agent that searches a corpus by keyword, by sentence and by chunk.

Du et al. 2026 (A-RAG). The model chooses among `keyword_search` (counts of exact text), and
`semantic_search` (nearest sentences), which show the matching sentences of at most `k` chunks, and
`chunk_read`, which shows whole chunks; a chunk read before is not shown again. Variants:

- `full`: all three tools.
- `naive`: one tool, which searches embeddings of whole chunks and shows them.
- `no_keyword`, `no_semantic`, `no_read`: one tool less; without `chunk_read` searches show whole
  chunks.

The index is made of the retriever's corpus by `embedder`; how the retriever itself searches is not
used. `backend=typed` asks with `ReActStep`, which works with any LM and can be compiled: a tool
takes one text there, lists are separated by commas, and every search shows `k` chunks.
`backend=native` is the provider's own tool calling, as published, where the model may ask for up to
20. One tool is used per turn, as the paper says; with `parallel_tools` all that a turn asks for, as
its code does.

After `max_steps` turns, or once the conversation has `token_budget` tokens, an answer is forced
from all that was shown. Three departures: the same call with the same result three times in a row
ends the loop as well; the oldest steps leave the prompt where they outgrow `context_tokens` or the
LM's own window; and answers are asked for in few words, which the original does not do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self

import dspy
from pydantic import Field, model_validator

from ragbench.errors import ConfigError
from ragbench.ledger import file_call
from ragbench.programs.a_rag_tools import MAX_TOP_K, ChunkTools, Seen, Settings, ToolUse
from ragbench.programs.a_rag_turns import (
    FINISH,
    Turn,
    ask_native,
    ask_typed,
    native_tools,
    shown_arguments,
    typed_tools,
)
from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.drivers import newest_fitting, repeats_itself, without_repeats
from ragbench.programs.trace import (
    ROLE_LMS_KEY,
    BudgetSpentError,
    StopReason,
    Trace,
    estimate_tokens,
    role_lm,
)
from ragbench.retrievers.base import PerQuestion, Progress, Retriever
from ragbench.retrievers.granular import GranularIndex
from ragbench.signatures.answering import AnswerFromContext
from ragbench.signatures.reasoning import ReActStep, ToolTurn
from ragbench.signatures.types import ToolCall


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
    backend: Literal["typed", "native"] = Field("typed", description="how tools are called")
    parallel_tools: bool = Field(False, description="use all tools that a native turn asks for")
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
        )


@PROGRAMS.register("a_rag")
class ARAG(RAGProgram):
    """Use search and reading tools in turns until the answer is found."""

    name = "a_rag"
    family = "agentic"
    paper = "Du et al. 2026"
    calls = "turns (<= max_steps) + 1 if forced"
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
        self.tools: Sequence[Any]
        if self.knobs.backend == "native":
            self.tools = native_tools(described, k=self.knobs.k)
            self.act = predict(ToolTurn)
        else:
            self.tools = typed_tools(described)
            choice = Literal[(*described, FINISH)]  # type: ignore[valid-type]
            self.act = predict(ReActStep.with_updated_fields("tool", type_=choice), like=ReActStep)
        self.conclude = predict(AnswerFromContext)

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """Do nothing if the LM of the role "reason" can take the program's turns.

        Raises:
            ConfigError: the native backend with an LM that cannot call tools.
        """
        acting = role_lms.get("reason", lm)
        if self.knobs.backend == "native" and not acting.supports_function_calling:
            raise ConfigError(
                f"a_rag backend=native needs an LM that can call tools, and {acting.model} "
                "cannot; use backend=typed"
            )

    def prepare(self, progress: Progress | None = None) -> None:
        """Embed the pooled corpus, and file the calls; a question's own passages come with it."""
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
        self.check_lms(dspy.settings.lm, dspy.settings.get(ROLE_LMS_KEY) or {})
        conversation = _Conversation(self, trace)
        reason: StopReason
        try:
            answer, reason = conversation.run()
        except BudgetSpentError:
            answer, reason = "", "budget"
        return trace.prediction(answer or conversation.conclude(), reason)


class _Conversation:
    """The turns of one question."""

    def __init__(self, program: ARAG, trace: Trace) -> None:
        self.program, self.trace = program, trace
        self.knobs: ARAGKnobs = program.knobs
        self.box = ChunkTools(trace, program.index_of(trace.retriever), program.settings)
        self.history: list[ToolCall] = []
        self.searched_question = False

    def run(self) -> tuple[str, StopReason]:
        """The answer, blank if there is none yet, and why the turns ended."""
        for _ in range(self.knobs.max_steps):
            if sum(map(_size, self.history)) >= self.knobs.token_budget:
                return "", "budget"
            turn = self._turn()
            if turn.unreadable:
                if not self.search_question():
                    return "", "parse_fallback"
            elif not turn.calls and self.box.shown_nothing and self.search_question():
                self.trace.count("unsearched_answer")
            elif not turn.calls:
                self.trace.step("answer", thought=turn.thought, observation=turn.answer)
                return turn.answer, "answered"
            for call in turn.calls[: None if self.knobs.parallel_tools else 1]:
                self._note(call, turn.thought, self.box.use(call.tool, call.arguments))
            if repeats_itself(self.history):
                return "", "no_progress"
        return "", "max_steps"

    def conclude(self) -> str:
        """An answer from all that was shown; the question is searched first if nothing was."""
        if self.box.shown_nothing:
            with suppress(BudgetSpentError):
                self.search_question()
        return self.trace.answer(
            self.program.conclude,
            last=True,
            context=self.box.context(max_tokens=self.knobs.context_tokens),
            question=self.trace.question,
            **self._effort("answer"),
        )

    def search_question(self) -> bool:
        """Whether a search for the question itself was still to be made, and now was."""
        if self.searched_question:
            return False
        self.searched_question = True
        call = self.box.call_for_question()
        if self.knobs.backend == "native":
            call = call._replace(shown=shown_arguments(call.arguments))
        self._note(call, "", self.box.use(call.tool, call.arguments))
        return True

    def _turn(self) -> Turn:
        shown = newest_fitting(without_repeats(self.history), self.knobs.context_tokens)
        ask = ask_native if self.knobs.backend == "native" else ask_typed
        return ask(self.trace, self.program.act, self.program.tools, shown, self._effort("reason"))

    def _effort(self, role: str) -> dict[str, Any]:
        """What asks the LM of `role` for the reasoning effort, where it reasons at all."""
        effort = self.knobs.reasoning_effort
        if not effort:
            return {}
        if not role_lm(role).supports_reasoning:
            self.trace.count("reasoning_effort_ignored")
            return {}
        return {"config": {"reasoning_effort": effort}}

    def _note(self, call: ToolUse, thought: str, seen: Seen) -> None:
        self.history.append(
            ToolCall(
                thought=thought, tool=call.tool, argument=call.shown, observation=seen.observation
            )
        )
        self.trace.step(
            call.tool,
            input=call.shown,
            thought=thought,
            observation=seen.observation,
            pids=seen.pids,
            notes={"retrieved": list(seen.retrieved)},
        )


def _size(call: ToolCall) -> int:
    return estimate_tokens(call.thought + call.tool + call.argument + call.observation)
