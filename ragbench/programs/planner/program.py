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

An action is asked for where there is a choice: the sub-questions of a split are solved in order
(`ask_always` asks before each). docs/programs.md has what else is decided here.
"""

from __future__ import annotations

from typing import Literal

import dspy
from pydantic import Field

from ragbench.errors import KnobError
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    ProgramKnobs,
    RAGProgram,
    Trace,
    cosine,
    embedder_of,
    is_answer,
    jaccard,
    predict,
    render,
)
from ragbench.programs.planner.exploration import Exploration, Parts
from ragbench.programs.planner.refine import best_entity, is_poor
from ragbench.programs.planner.tree import Node, Tree, without_repeats
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import (
    PLANNER_ACTIONS,
    AnswerPart,
    AnswerWithHints,
    DirectAnswer,
    PlannerAction,
    RateAnswer,
    RefineAnswer,
    RetrievalPlan,
)


class PlannerKnobs(ProgramKnobs):
    """Knobs of `planner`."""

    k: int = Field(3, ge=1, le=100, description="passages per search")
    max_steps: int = Field(5, ge=1, le=50, description="actions at the most, splits not counted")
    max_depth: int = Field(3, ge=0, le=10, description="levels below the question")
    max_children: int = Field(4, ge=1, le=10, description="sub-questions of a node")
    similarity: Literal["jaccard", "embedding"] = Field(
        "jaccard", description="of sub-questions: by shared words, or by the retriever's embedder"
    )
    max_similarity: float = Field(
        0.85, gt=0, le=1, description="a sub-question this like another is dropped"
    )
    solved_confidence: float = Field(
        0.3, ge=0, le=1, description="of an answer, for its node to count as solved"
    )
    stop_confidence: float = Field(0.8, ge=0, le=1, description="of the root, to stop at once")
    gate: Literal["ask", "always", "never"] = Field("ask", description="retrieve: ask, or decide")
    ask_always: bool = Field(
        False, description="ask for an action even where sub-questions wait to be solved"
    )
    rollout: bool = Field(True, description="offer ROLLOUT")
    backtrack: bool = Field(True, description="offer BACKTRACK")
    refine: bool = Field(True, description="refine poor answers to bridge questions")
    refine_max_attempts: int = Field(1, ge=1, le=5, description="refinements of one answer")
    generic_answers: str = Field(
        "yes, no", description="answers that are poor beside refusals, separated by commas"
    )
    joint_confidence: bool = Field(True, description="answer and rate in one call")
    synthesize_when_root_confident: bool = Field(
        False, description="answer once more from all findings even where the root is confident"
    )


@PROGRAMS.register("planner")
class PlannerRAG(RAGProgram):
    """Explore a tree of sub-questions action by action, then answer from what was found."""

    name = "planner"
    family = "agentic"
    calls = (
        "1 gate + 1 per choice + 1 per sub-question (<= max_steps) + 1 answer + refinements; "
        "2 if direct"
    )
    autonomy = Autonomy("partly", "yes", "yes")
    Knobs = PlannerKnobs
    variants = {"seed": {}, "separate_confidence": {"joint_confidence": False}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.similarity == "embedding" and embedder_of(retriever) is None:
            raise KnobError(
                "planner: similarity='embedding' needs a retriever with an embedder; "
                "use dense or hybrid, or set similarity to jaccard"
            )
        self.decide = predict(RetrievalPlan)
        self.direct = predict(DirectAnswer)
        self.choose = predict(_offering(self.knobs), like=PlannerAction)
        if self.knobs.joint_confidence:
            self.answer = predict(AnswerPart)
        else:
            self.answer = predict(AnswerWithHints)
            self.rate = predict(RateAnswer)
        self.synthesize = predict(AnswerWithHints)
        if self.knobs.refine:
            self.refine = predict(RefineAnswer)

    def alike(self, a: str, b: str) -> float:
        """How like two sub-questions are, at most 1."""
        embedder = embedder_of(self.retriever) if self.knobs.similarity == "embedding" else None
        return cosine(embedder, a, b) if embedder else jaccard(a, b)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Gate, explore, conclude."""
        retrieve, question_type = self._gate(trace)
        if not retrieve:
            return trace.prediction(self.force(trace), "direct")
        tree = Tree(trace.question)
        parts = Parts(self.choose, self.answer, getattr(self, "rate", None), self.alike)
        try:
            reason = Exploration(parts, trace, self.knobs, tree).run(
                one_fact=question_type == "single"
            )
        except BudgetSpentError:
            reason = "budget"
        answer = self._conclude(trace, tree, question_type)
        nodes = [node.record() for node in tree.nodes.values()]
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
            return bool(self.knobs.gate == "always"), ""
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
        solved, root = tree.solved(), tree.root
        confident = root.status == "solved" and (
            root.confidence >= self.knobs.stop_confidence or solved == [root]
        )
        notes, passages = _findings(known, trace.passages)
        if confident and not self.knobs.synthesize_when_root_confident:
            answer = root.answer
        elif known:
            answer = self._read(trace, notes, passages)
        else:
            return self.force(trace)
        if self.knobs.refine and self._needs_refining(answer, trace.question, question_type):
            answer = self._refined(trace, known, answer)
        return answer if is_answer(answer) else root.answer or answer

    def _needs_refining(self, answer: str, question: str, question_type: str) -> bool:
        if question_type == "bridge":
            return is_poor(answer, question, generic=self.knobs.generic_answers)
        return not question_type and not is_answer(answer)

    def _refined(self, trace: Trace, known: list[Node], draft: str) -> str:
        notes, passages = _findings(known, trace.passages)
        better = draft
        for _ in range(self.knobs.refine_max_attempts):
            try:
                better = trace.answer(
                    self.refine,
                    context=render(passages, max_tokens=self.knobs.context_tokens),
                    notes=notes,
                    question=trace.question,
                    draft=better,
                )
            except BudgetSpentError:
                break
            if not is_poor(better, trace.question, generic=self.knobs.generic_answers):
                return better
        entity = best_entity(trace.question, known)
        if entity:
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
    if not knobs.rollout:
        signature = signature.delete("max_parts").delete("sub_questions")
    return signature


def _findings(known: list[Node], passages: list[Passage]) -> tuple[list[str], list[Passage]]:
    """Notes of the nodes that have an answer, and all passages, those that prove one first."""
    notes = [n.note + ("" if n.status == "solved" else " (unsure)") for n in known]
    return notes, without_repeats([*(p for n in known for p in n.passages), *passages])
