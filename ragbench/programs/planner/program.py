"""Planner: a tree of sub-questions that the model explores action by action.

The design is the specification's own; the two papers it names, TreePS-RAG (arXiv:2601.06922: tree
search to train an agent) and RAGShaper (arXiv:2601.08699: data synthesis), have none of these
actions, so this implements neither. After a gate, the actions are:

- TRAVERSE solves a node: one search, then its answer, a confidence and, where that settles it, the
  answer to the main question, in one call.
- ROLLOUT splits a node into sub-questions, which the same call writes; a later one names the answer
  of an earlier one as {1}.
- SELECT makes a node active; an open one is solved, a solved one costs nothing.
- BACKTRACK gives the active node up and goes to its parent; at the root it does nothing.
- STOP ends the search, as does a root solved with `stop_confidence`.

Departure: an action is asked for where there is a choice, and the sub-questions of a split are
solved in order; the specification asks before each (`ask_always`). docs/programs.md has what else
is decided here.
"""

from __future__ import annotations

from typing import Literal

import dspy

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    RAGProgram,
    Trace,
    is_answer,
    predict,
    render,
)
from ragbench.programs.planner.exploration import Exploration
from ragbench.programs.planner.knobs import PlannerKnobs
from ragbench.programs.planner.refine import best_entity, is_poor
from ragbench.programs.planner.tree import Node, Tree, without_repeats
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import (
    PLANNER_ACTIONS,
    AnswerPart,
    AnswerWithHints,
    DirectAnswer,
    PlannerAction,
    RefineAnswer,
    RetrievalPlan,
)


@PROGRAMS.register("planner")
class PlannerRAG(RAGProgram[PlannerKnobs]):
    """Explore a tree of sub-questions action by action, then answer from what was found."""

    name = "planner"
    family = "agentic"
    calls = (
        "1 gate + 1 per choice + 1 per sub-question (<= max_steps) + 1 answer + 1 if refined; "
        "2 if direct"
    )
    autonomy = Autonomy("partly", "yes", "yes")
    variants = {"spec": {}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.decide = predict(RetrievalPlan)
        self.direct = predict(DirectAnswer)
        self.choose = predict(_offering(self.knobs), like=PlannerAction)
        self.answer = predict(AnswerPart)
        self.synthesize = predict(AnswerWithHints)
        if self.knobs.refine:
            self.refine = predict(RefineAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Gate, explore, conclude."""
        retrieve, question_type = self._gate(trace)
        if not retrieve:
            return trace.prediction(self.force(trace), "direct")
        exploration = Exploration(trace, self.knobs, choose=self.choose, answer=self.answer)
        try:
            reason = exploration.run(one_fact=question_type == "single")
        except BudgetSpentError:
            reason = "budget"
        answer = self._conclude(trace, exploration.tree, question_type)
        nodes = [node.record() for node in exploration.tree.nodes.values()]
        return trace.prediction(answer, reason, tree=nodes)

    def force(self, trace: Trace) -> str:
        """An answer from the passages found; the model's own where there are none."""
        if not trace.passages:
            return trace.answer(self.direct, last=True, question=trace.question)
        return self._read(trace, [], trace.passages)

    def _read(self, trace: Trace, notes: list[str], passages: list[Passage]) -> str:
        """The answer to the main question from all that was found."""
        context = render(passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(
            self.synthesize, last=True, context=context, notes=notes, question=trace.question
        )

    def _gate(self, trace: Trace) -> tuple[bool, str]:
        """Whether to retrieve, and the question's type; blank if that is not known."""
        if self.knobs.gate != "ask":
            return self.knobs.gate == "always", ""
        reply = trace.ask(
            self.decide,
            otherwise={"retrieve": True, "question_type": ""},
            question=trace.question,
        )
        trace.step(
            "gate",
            observation="retrieve" if reply.retrieve else "answer from memory",
            notes={"question_type": reply.question_type},
        )
        return bool(reply.retrieve), str(reply.question_type)

    def _conclude(self, trace: Trace, tree: Tree, question_type: str) -> str:
        """The answer to the main question, never that of a sub-question in its place."""
        known = [node for node in tree.nodes.values() if node.answer and node.status != "pruned"]
        root = tree.root
        confident = root.status == "solved" and (
            root.confidence >= self.knobs.stop_confidence or tree.solved() == [root]
        )
        notes = [n.note + ("" if n.status == "solved" else " (unsure)") for n in known]
        proofs = [passage for node in known for passage in node.passages]
        passages = without_repeats([*proofs, *trace.passages])
        if confident:
            answer = root.answer
        elif known:
            answer = self._read(trace, notes, passages)
        else:
            return self.force(trace)
        poor = not is_answer(answer)
        if question_type:
            poor = question_type == "bridge" and is_poor(answer, trace.question)
        if self.knobs.refine and poor:
            answer = self._refined(trace, known, notes, passages, answer)
        return answer if is_answer(answer) else root.answer or answer

    def _refined(
        self,
        trace: Trace,
        known: list[Node],
        notes: list[str],
        passages: list[Passage],
        draft: str,
    ) -> str:
        """A better answer than `draft` by one more call, or else the name found most."""
        better = draft
        try:
            context = render(passages, max_tokens=self.knobs.context_tokens)
            better = trace.answer(
                self.refine, context=context, notes=notes, question=trace.question, draft=draft
            )
        except BudgetSpentError:
            pass
        if not is_poor(better, trace.question):
            return better
        if entity := best_entity(trace.question, known):
            trace.step("answer", observation=entity, notes={"entity_fallback": True})
            trace.count("entity_fallback")
        return entity or better or draft


def _offering(knobs: PlannerKnobs) -> type[dspy.Signature]:
    """The choice among the actions that the knobs leave."""
    off = {"ROLLOUT": knobs.rollout, "BACKTRACK": knobs.backtrack}
    offered = {name: does for name, does in PLANNER_ACTIONS.items() if off.get(name, True)}
    signature: type[dspy.Signature] = PlannerAction.with_updated_fields(
        "action",
        type_=Literal[tuple(offered)],
        desc="; ".join(f"{name}: {does}" for name, does in offered.items()),
    )
    return signature if knobs.rollout else signature.delete("max_parts").delete("sub_questions")
