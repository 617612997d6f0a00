"""ReAct: think, use a tool, look at what it shows, and repeat until finished.

Yao et al. 2023 (arXiv:2210.03629). Variants:

- `spec`: the simplified specification. `search` shows the first words of the top passages of the
  corpus, `lookup` all matching sentences of every passage found so far; at the limit an answer is
  forced from the passages and thoughts.
- `page`: the original's tools. `search` opens the page of a title, or names similar ones; `lookup`
  walks the open page one hit at a time. The live Wikipedia is the given corpus here, and the six
  worked examples are left to `compile`. `force_answer=False` gives no answer at the limit, as the
  original did.
- `tree`: TreePS-RAG's loop at inference, untrained: a tree of searches, see
  `ragbench.programs.react.tree`.

`act_only` and `lookup=False` are the paper's ablations, `initial_retrieval` searches the question
before the first turn. `backend=native` takes the turns by the provider's own tool calls: a turn
without a call is the answer, and at the limit the same conversation goes on without tools. It is
the default of `spec` where the LM can call tools; `page` keeps the text protocol of the paper, and
`act_only` has no text beside a call.

A typed turn writes an answer, which may be blank, before its tool; in the paper it is the argument
of `Finish`. One beside another tool is kept as a part of that turn's thought. `guards` lists what
is added to help a model (see `ragbench.programs.core.tools`); `guards=false` is the bare loop of
the paper. The oldest steps leave the prompt where the trajectory outgrows `context_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from pydantic import Field, field_validator

from ragbench.context import current
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    Trace,
    is_answer,
    predict,
    render,
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
from ragbench.programs.react.tools import CorpusTools, PageTools, ReActTools
from ragbench.programs.react.tree import Selection, StepTree
from ragbench.retrievers import Retriever
from ragbench.signatures import ActStep, AnswerWithHints, ReActStep


class ReActKnobs(ProgramKnobs):
    """Knobs of `react`."""

    max_steps: int = Field(7, ge=1, le=50, description="tool calls at the most")
    snippet_words: int = Field(120, ge=5, le=10_000, description="words shown of a passage found")
    initial_retrieval: bool = Field(False, description="search with the question first (not tree)")
    lookup: bool = Field(True, description="offer the tool lookup")
    act_only: bool = Field(False, description="no thoughts")
    force_answer: bool = Field(True, description="answer from the passages at the limit")
    backend: Backend = Field("auto", description="how tools are called; auto: native if possible")
    guards: tuple[Guard, ...] = Field(
        DEFAULT_GUARDS, description="help for a model, by name; false: none, true: all (not tree)"
    )
    branching: int = Field(2, ge=1, le=10, description="next steps sampled of a path (tree)")
    width: int = Field(3, ge=1, le=20, description="paths open or finished at the most (tree)")
    similarity: float = Field(
        0.8, gt=0, le=1, description="words shared with a sibling that prune a step (tree)"
    )
    select: Selection = Field(
        "vote", description="the paths' answer: most given, first, or read anew (tree)"
    )

    _guards = field_validator("guards", mode="before")(guards_of)


@PROGRAMS.register("react")
class ReActRAG(RAGProgram[ReActKnobs]):
    """Think and use tools in turns until the answer is found."""

    name = "react"
    family = "agentic"
    paper = "arXiv:2210.03629"
    calls = (
        "steps (<= max_steps) + 1 if forced; "
        "tree: branching per open path (<= width) and step, + 1 if forced"
    )
    autonomy = Autonomy("yes", "yes", "yes")
    variants = {  # noqa: RUF012
        "spec": {},
        "page": {"backend": "typed"},
        "tree": {"backend": "typed", "lookup": False, "max_steps": 4},
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        names = ("search", "lookup") if self.knobs.lookup else ("search",)
        self.act = tool_predictor(ActStep if self.knobs.act_only else ReActStep, names)
        if self.knobs.force_answer:
            self.conclude = predict(AnswerWithHints)

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """Do nothing if the LM of the role "reason" can take the program's turns.

        Raises:
            ConfigError: the native backend with an LM that cannot call tools.
        """
        check_backend(self.name, self.knobs.backend, role_lms.get("reason", lm))

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Steps until one finishes, then a forced answer if none did."""
        self.check_lms(dspy.settings.lm, current().role_lms)
        knobs = self.knobs
        made: type[ReActTools] = PageTools if knobs.variant == "page" else CorpusTools
        box = made(
            trace,
            k=knobs.k,
            words=knobs.snippet_words,
            lookup=knobs.lookup,
            guard="lookup" in knobs.guards,
        )
        if knobs.variant == "tree":
            return self._tree(trace, box)
        asker = self._asker(box)
        loop = ToolLoop(box, asker, max_steps=knobs.max_steps)
        answer: str
        reason: StopReason
        try:
            if knobs.initial_retrieval:
                loop.search_question()
            answer, reason = loop.run()
        except BudgetSpentError:
            answer, reason = "", "budget"
        if not answer and knobs.force_answer:
            if asker.native and not loop.guess:
                answer = asker.conclude(loop.done)
            answer = answer or self._read(trace, loop.thoughts)
        if loop.guess and not is_answer(answer):
            answer = loop.guess
        return trace.prediction(answer, reason)

    def _read(self, trace: Trace, thoughts: Sequence[str]) -> str:
        """An answer from all passages and `thoughts`."""
        return trace.answer(
            self.conclude,
            last=True,
            context=render(trace.passages, max_tokens=self.knobs.context_tokens),
            notes=list(thoughts),
            question=trace.question,
        )

    def _asker(self, box: ReActTools, **more: Any) -> ToolAsker:
        return ToolAsker(
            self.act,
            box,
            **{
                "backend": "typed" if self.knobs.act_only else self.knobs.backend,
                "context_tokens": self.knobs.context_tokens,
                "guards": self.knobs.guards,
                **more,
            },
        )

    def _tree(self, trace: Trace, box: ReActTools) -> dspy.Prediction:
        knobs = self.knobs
        further = (
            {"temperature": 0.7, "rollout_id": sample} for sample in range(1, knobs.branching)
        )
        tree = StepTree(
            box,
            [self._asker(box, config=config, guards=()) for config in ({}, *further)],
            max_steps=knobs.max_steps,
            width=knobs.width,
            similarity=knobs.similarity,
        )
        reason = tree.grow()
        answer = tree.selected(knobs.select)
        if answer:
            trace.step("answer", observation=answer, notes={"answers": list(tree.answers)})
        elif knobs.force_answer:
            answer = self._read(trace, list(dict.fromkeys(tree.thoughts)))
        return trace.prediction(answer, reason)
