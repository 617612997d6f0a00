"""ReAct: think, use a tool, look at what it shows, and repeat until finished.

Yao et al. 2023 (arXiv:2210.03629). Variants:

- `seed`: the simplified specification. `search` shows the top passages of the corpus, `lookup` all
  matching sentences of every passage found so far.
- `page`: the original's tools. `search` opens the page of a title, or names similar ones; `lookup`
  walks the open page one hit at a time. The live Wikipedia is the given corpus here, and the six
  worked examples are left to `compile`. `force_answer=False` gives no answer at the limit, as the
  original did.
- `dspy`: the loop of `dspy.ReAct` with the tools of `seed`. It always spends one more call on
  extracting the answer.

`act_only` and `lookup=False` are the paper's ablations. A reply that cannot be parsed is read as a
search for the question, and ends the loop with a forced answer if that was done before; it never
becomes the answer itself. So does the same action with the same result three times in a row; the
second time the model is told so in place of the result. `lookup` is offered once there is something
to look in. The oldest steps leave the prompt where the trajectory outgrows `context_tokens`.
"""

from __future__ import annotations

from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.drivers import newest_fitting, repeats_itself, without_repeats
from ragbench.programs.react_dspy import TracedReAct
from ragbench.programs.tools import CorpusTools, PageTools, Toolbox
from ragbench.programs.trace import StopReason, Trace, render
from ragbench.retrievers.base import Retriever
from ragbench.signatures.answering import AnswerFromContext
from ragbench.signatures.reasoning import ActStep, ReActStep
from ragbench.signatures.types import ToolCall

_FINISH = ("answer", "give the final answer in as few words as possible")


class ReActKnobs(ProgramKnobs):
    """Knobs of `react`."""

    max_steps: int = Field(7, ge=1, le=50, description="tool calls at the most")
    snippet_words: int = Field(60, ge=5, le=10_000, description="words shown of a passage found")
    lookup: bool = Field(True, description="offer the tool lookup")
    act_only: bool = Field(False, description="no thoughts (seed, page)")
    force_answer: bool = Field(True, description="answer from the passages at the limit")


@PROGRAMS.register("react")
class ReActRAG(RAGProgram):
    """Think and use tools in turns until the answer is found."""

    name = "react"
    family = "agentic"
    paper = "arXiv:2210.03629"
    calls = "steps (<= max_steps) + 1 if forced; dspy: steps + 1"
    autonomy = Autonomy("yes", "yes", "yes")
    Knobs = ReActKnobs
    variants = {"seed": {}, "page": {}, "dspy": {}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.tools = PageTools if self.knobs.variant == "page" else CorpusTools
        described = {**self.tools.described, "finish": _FINISH}
        if not self.knobs.lookup:
            del described["lookup"]
        self.described = described
        if self.knobs.variant == "dspy":
            self.agent = TracedReAct(described, max_iters=self.knobs.max_steps)
        else:
            step = ActStep if self.knobs.act_only else ReActStep
            choice = Literal[tuple(described)]  # type: ignore[valid-type]
            self.act = predict(step.with_updated_fields("tool", type_=choice), like=step)
        if self.knobs.force_answer:
            self.conclude = predict(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Steps until one finishes, then a forced answer if none did."""
        box = self.tools(trace, k=self.knobs.k, snippet_words=self.knobs.snippet_words)
        if self.knobs.variant == "dspy":
            answer, reason = self.agent.run(trace, box)
        else:
            answer, reason = self._loop(trace, box)
        if not answer and self.knobs.force_answer:
            if not trace.passages and trace.question not in {s.query for s in trace.searches}:
                trace.search(trace.question, k=self.knobs.k)
            answer = self.force(trace)
        return trace.prediction(answer, reason)

    def force(self, trace: Trace) -> str:
        """An answer from all passages seen; blank if the program was told not to."""
        if not self.knobs.force_answer:
            return ""
        context = render(trace.passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(self.conclude, last=True, context=context, question=trace.question)

    def _loop(self, trace: Trace, box: Toolbox) -> tuple[str, StopReason]:
        history: list[ToolCall] = []
        for _ in range(self.knobs.max_steps):
            call = self._next(trace, box, history)
            if call is None:
                return "", "parse_fallback"
            if call.tool == "finish":
                trace.step("answer", thought=call.thought, observation=call.argument)
                return call.argument, "answered"
            before = len(trace.searches)
            seen = box.use(call.tool, call.argument)
            history.append(call.model_copy(update={"observation": seen}))
            self._note(trace, history[-1], before)
            if repeats_itself(history):
                return "", "no_progress"
        return "", "max_steps"

    def _offered(self, box: Toolbox) -> list[tuple[str, tuple[str, str]]]:
        return [(t, what) for t, what in self.described.items() if t != "lookup" or box.can_look_up]

    def _next(self, trace: Trace, box: Toolbox, history: list[ToolCall]) -> ToolCall | None:
        reply = trace.ask(
            self.act,
            otherwise={"tool": "", "argument": ""},
            tools=[f"{t}({name}): {does}" for t, (name, does) in self._offered(box)],
            question=trace.question,
            trajectory=newest_fitting(without_repeats(history), self.knobs.context_tokens),
        )
        thought = " ".join(str(reply.get("thought") or "").split())
        if reply.tool:
            return ToolCall(thought=thought, tool=reply.tool, argument=self._argument(trace, reply))
        asked = {call.argument for call in history if call.tool == "search"}
        if trace.question in asked:
            return None
        return ToolCall(thought="", tool="search", argument=trace.question)

    def _argument(self, trace: Trace, reply: dspy.Prediction) -> str:
        """The argument of the reply; of a search for the tool's own description, the question."""
        argument = " ".join(reply.argument.split())
        if reply.tool == "search" and argument in self.described["search"]:
            trace.count("copied_tool")
            return trace.question
        return argument

    def _note(self, trace: Trace, call: ToolCall, searches_before: int) -> None:
        hits = [hit for search in trace.searches[searches_before:] for hit in search.hits]
        trace.step(
            call.tool,
            input=call.argument,
            thought=call.thought,
            observation=call.observation,
            pids=tuple(pid for pid, _ in hits),
        )
