"""ReAct: think, use a tool, look at what it shows, and repeat until finished.

Yao et al. 2023 (arXiv:2210.03629). Variants:

- `seed`: the simplified specification. `search` shows the top passages of the corpus, `lookup` all
  matching sentences of every passage found so far. The question is searched before the first turn,
  which saves a call; `initial_retrieval=false` leaves that to the model, as published.
- `page`: the original's tools. `search` opens the page of a title, or names similar ones; `lookup`
  walks the open page one hit at a time. The live Wikipedia is the given corpus here, and the six
  worked examples are left to `compile`. `force_answer=False` gives no answer at the limit, as the
  original did.
- `dspy`: the loop of `dspy.ReAct` with the tools of `seed`. It always spends one more call on
  extracting the answer.
- `tree`: TreePS-RAG's loop at inference, untrained: a tree of searches, see
  `ragbench.programs.react.tree`.

`act_only` and `lookup=False` are the paper's ablations. `backend=native` takes the turns by the
provider's own tool calls: a turn without a call is the answer, and at the limit the same
conversation goes on without tools. It is the default of `seed` where the LM can call tools; `page`
keeps the text protocol of the paper, and `act_only` has no text beside a call.

A typed turn writes an answer, which may be blank, before its tool; in the paper it is the argument
of `Finish`. Once anything was seen, one beside another tool ends the loop too, but as a guess: the
reader of the forced answer settles it. A turn that only repeats an earlier thought is asked for
once more, warmer and without that thought (not in `tree`).

A reply that cannot be parsed is read as a search for the question, and ends the loop with a forced
answer if that was done before; it never becomes the answer itself. Where a step only repeats an
earlier one, the model is told so in place of the result, and the tool is withdrawn, if there is
another, until something new is seen; a second such step ends the loop with a forced answer.
`lookup` is offered once there is something to look in. A passage shown before is named, not shown
again, and the oldest steps leave the prompt where the trajectory outgrows `context_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy
from pydantic import Field

from ragbench.context import current
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
    render,
    tool_predictor,
)
from ragbench.programs.react.dspy_react import TracedReAct
from ragbench.programs.react.tools import CorpusTools, PageTools, ReActTools
from ragbench.programs.react.tree import Selection, StepTree
from ragbench.retrievers import Retriever
from ragbench.signatures import ActStep, AnswerWithHints, ReActStep


class ReActKnobs(ProgramKnobs):
    """Knobs of `react`."""

    max_steps: int = Field(7, ge=1, le=50, description="tool calls at the most")
    snippet_words: int = Field(120, ge=5, le=10_000, description="words shown of a passage found")
    initial_retrieval: bool = Field(True, description="search with the question first (seed, page)")
    lookup: bool = Field(True, description="offer the tool lookup")
    act_only: bool = Field(False, description="no thoughts (seed, page, tree)")
    force_answer: bool = Field(True, description="answer from the passages at the limit")
    backend: Backend = Field("auto", description="how tools are called; auto: native if possible")
    branching: int = Field(2, ge=1, le=10, description="next steps sampled of a path (tree)")
    width: int = Field(3, ge=1, le=20, description="paths open or finished at the most (tree)")
    similarity: float = Field(
        0.8, gt=0, le=1, description="words shared with a sibling that prune a step (tree)"
    )
    sample_temperature: float = Field(
        0.7, gt=0, le=2, description="of all samples but the first (tree)"
    )
    select: Selection = Field(
        "vote", description="the paths' answer: most given, first, or read anew (tree)"
    )


@PROGRAMS.register("react")
class ReActRAG(RAGProgram):
    """Think and use tools in turns until the answer is found."""

    name = "react"
    family = "agentic"
    paper = "arXiv:2210.03629"
    calls = (
        "steps (<= max_steps), twice where a thought is repeated, + 1 if forced; dspy: steps + 1; "
        "tree: branching per open path (<= width) and step, + 1 if forced"
    )
    autonomy = Autonomy("yes", "yes", "yes")
    Knobs = ReActKnobs
    variants = {  # noqa: RUF012
        "seed": {},
        "page": {"backend": "typed", "initial_retrieval": False},
        "dspy": {"initial_retrieval": False},
        "tree": {"backend": "typed", "initial_retrieval": False, "lookup": False, "max_steps": 4},
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.tools: type[ReActTools] = PageTools if self.knobs.variant == "page" else CorpusTools
        described = dict(self.tools.described)
        if not self.knobs.lookup:
            del described["lookup"]
        if self.knobs.variant == "dspy":
            self.agent = TracedReAct(described, max_iters=self.knobs.max_steps)
        else:
            self.act = tool_predictor(ActStep if self.knobs.act_only else ReActStep, described)
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
        knobs = self.knobs
        box = self.tools(trace, k=knobs.k, snippet_words=knobs.snippet_words, lookup=knobs.lookup)
        if knobs.variant == "dspy":
            answer, reason = self.agent.run(trace, box)
        elif knobs.variant == "tree":
            answer, reason = self._tree(trace, box)
        else:
            answer, reason = self._loop(trace, box)
        if not answer and knobs.force_answer:
            if not trace.passages and trace.question not in {s.query for s in trace.searches}:
                trace.search(trace.question, k=knobs.k)
            answer = self.force(trace)
        return trace.prediction(answer, reason)

    def force(self, trace: Trace) -> str:
        """An answer from all passages and thoughts; blank if the program was told not to."""
        if not self.knobs.force_answer:
            return ""
        return trace.answer(
            self.conclude,
            last=True,
            context=render(trace.passages, max_tokens=self.knobs.context_tokens),
            notes=list(dict.fromkeys(step.thought for step in trace.steps if step.thought)),
            question=trace.question,
        )

    def _asker(
        self, box: ReActTools, config: Mapping[str, Any] | None = None, *, resample: bool = True
    ) -> ToolAsker:
        return ToolAsker(
            self.act,
            box,
            backend="typed" if self.knobs.act_only else self.knobs.backend,
            context_tokens=self.knobs.context_tokens,
            style=self.knobs.answer_style,
            config=config,
            resample=resample,
        )

    def _tree(self, trace: Trace, box: ReActTools) -> tuple[str, StopReason]:
        knobs = self.knobs
        further = (
            {"temperature": knobs.sample_temperature, "rollout_id": sample}
            for sample in range(1, knobs.branching)
        )
        tree = StepTree(
            box,
            [self._asker(box, config, resample=False) for config in ({}, *further)],
            max_steps=knobs.max_steps,
            width=knobs.width,
            similarity=knobs.similarity,
        )
        reason = tree.grow()
        answer = tree.selected(knobs.select)
        if answer:
            trace.step("answer", observation=answer, notes={"answers": list(tree.answers)})
        return answer, reason

    def _loop(self, trace: Trace, box: ReActTools) -> tuple[str, StopReason]:
        self.check_lms(dspy.settings.lm, current().role_lms)
        asker = self._asker(box)
        loop = ToolLoop(box, asker, max_steps=self.knobs.max_steps)
        reason: StopReason
        try:
            if self.knobs.initial_retrieval:
                loop.search_question()
            answer, reason = loop.run()
        except BudgetSpentError:
            answer, reason = "", "budget"
        if not answer and asker.native and self.knobs.force_answer and trace.passages:
            answer = asker.conclude(loop.done)
        if loop.guess:
            answer = loop.settled(self.force(trace))
        return answer, reason
