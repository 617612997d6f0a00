"""RLM: three different systems under one name.

- `decompose`: recursive splitting of the question, see `ragbench.programs.rlm.recursion`.
- `repl_corpus`: Recursive Language Models as published, see `ragbench.programs.rlm.corpus`.
- `repl_tools`: the same loop over the question's top k, with `search` and `read` as tools, see
  `ragbench.programs.rlm.tools`.

They share neither prompts nor costs: never average or compare them as one system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    Described,
    ProgramKnobs,
    RAGProgram,
    Trace,
    predict,
)
from ragbench.programs.rlm import corpus, tools
from ragbench.programs.rlm.recursion import Recursion
from ragbench.programs.rlm.repl import SUB, TracedRLM
from ragbench.programs.rlm.sandbox import Limits
from ragbench.retrievers import Retriever
from ragbench.signatures import AnswerFromContext, RecursiveDecompose, SynthesizeAnswer

_REPL = {"max_calls": 71}


class RLMKnobs(ProgramKnobs):
    """Knobs of `rlm`."""

    max_calls: int = Field(22, ge=1, le=10_000, description="LM calls per question at the most")
    strategy: Literal["binary", "multi", "adaptive"] = Field(
        "binary", description="sub-questions: 2, max_children, or what the calls left can pay for"
    )
    max_depth: int = Field(3, ge=0, le=10, description="levels below the question (decompose)")
    max_children: int = Field(5, ge=2, le=20, description="sub-questions of one node (decompose)")
    sequential_children: bool = Field(
        True, description="solve in order where one uses the answer of another (decompose)"
    )
    memo: bool = Field(True, description="ask a sub-question once (decompose)")
    max_turns: int = Field(20, ge=1, le=100, description="blocks of code (repl)")
    max_sub_calls: int = Field(50, ge=0, le=1000, description="llm_query calls (repl)")
    max_variable: int = Field(2000, ge=1, description="passages in the variable (repl_corpus)")
    output_chars: int = Field(
        10_000, ge=100, le=1_000_000, description="characters shown of what a block prints (repl)"
    )
    code_seconds: float = Field(5.0, gt=0, le=600, description="running time of a block (repl)")
    code_memory_mb: int = Field(256, ge=8, le=65_536, description="memory of the sandbox (repl)")


@PROGRAMS.register("rlm")
class RLM(RAGProgram):
    """Split the question, or explore its passages with code, until it can be answered."""

    name = "rlm"
    family = "rlm"
    paper = "arXiv:2512.24601"
    calls = (
        "decompose: nodes + splits (<= max_calls, 22); repl: turns (<= 20) + llm_query (<= 50) + 1"
    )
    autonomy = Autonomy("partly", "yes", "yes")
    Knobs = RLMKnobs
    variants = {"decompose": {}, "repl_corpus": _REPL, "repl_tools": _REPL}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.variant == "decompose":
            self.decompose = predict(RecursiveDecompose)
            self.read = predict(AnswerFromContext)
            self.combine = predict(SynthesizeAnswer)
        else:
            self.repl = TracedRLM(
                tools=[tools.search, tools.read] if self.knobs.variant == "repl_tools" else [],
                limits=Limits(
                    seconds=self.knobs.code_seconds,
                    memory_mb=self.knobs.code_memory_mb,
                    output_chars=self.knobs.output_chars,
                ),
                max_turns=self.knobs.max_turns,
                max_sub_calls=self.knobs.max_sub_calls,
                prompt_chars=4 * self.knobs.context_tokens,
            )

    def other_calls(self) -> Sequence[Described]:
        """Those of `llm_query`, in the repl variants."""
        return () if self.knobs.variant == "decompose" else (SUB,)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Recursion, or the REPL loop."""
        if self.knobs.variant != "decompose":
            return self.repl.explore(trace, *self._variable(trace))
        recursion = Recursion(
            trace, self.knobs, decompose=self.decompose, read=self.read, combine=self.combine
        )
        solved = recursion.run()
        return trace.prediction(
            solved.answer, "answered", tree=[node.model_dump() for node in solved.nodes]
        )

    def force(self, trace: Trace) -> str:
        """An answer from all passages so far, or from the code that was run."""
        if self.knobs.variant != "decompose":
            return self.repl.forced(trace, self._variable(trace)[0])
        return self.answer_from(trace, self.read, trace.passages)

    def _variable(self, trace: Trace) -> tuple[list[str], str]:
        if self.knobs.variant == "repl_corpus":
            return corpus.variable(trace, most=self.knobs.max_variable)
        return tools.variable(trace, k=self.knobs.k)
