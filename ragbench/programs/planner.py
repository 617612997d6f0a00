"""Planner: a tree of sub-questions that the model explores action by action.

The design is the specification's own; the two papers it names, TreePS-RAG (arXiv:2601.06922: tree
search to train an agent) and RAGShaper (arXiv:2601.08699: data synthesis), have none of these
actions, so this implements neither. After a gate, each round asks for one action:

- SELECT makes a node active; an open one is solved, a solved one costs nothing.
- TRAVERSE solves a node: search with its question and the answers it builds on, then answer and
  rate in one call. The same question with the same known answers is not asked twice.
- ROLLOUT splits a node into at most `max_children`, without near-duplicates, down to `max_depth`.
- BACKTRACK gives the active node up and goes to its parent; at the root it does nothing.
- STOP ends the search, as does a root solved with `stop_confidence`.

An unknown node means the active one; after two actions in a row that change nothing the deepest
open node is solved. A child knows the answers of its ancestors and of its elder sisters. The final
answer is synthesised from the solved nodes, unless the root was solved with confidence or alone. A
bridge question whose answer names nothing is refined once; then the best supported name among the
solved answers stands in. The gate infers the question's type, which is never read from the data;
with the gate off, only an answer that says nothing is refined.
"""

from __future__ import annotations

from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.errors import KnobError
from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.drivers import cosine, embedder_of, is_answer, jaccard, unit
from ragbench.programs.planner_tree import Tree, best_entity, is_poor, notes_of
from ragbench.programs.trace import BudgetSpentError, StopReason, Trace, render
from ragbench.retrievers.base import Retriever
from ragbench.signatures.answering import (
    AnswerWithConfidence,
    AnswerWithHints,
    DirectAnswer,
    RefineAnswer,
    SynthesizeAnswer,
)
from ragbench.signatures.judging import RateAnswer, RetrievalPlan
from ragbench.signatures.planning import Decompose, PlannerAction
from ragbench.signatures.types import TreeNode


class PlannerKnobs(ProgramKnobs):
    """Knobs of `planner`."""

    k: int = Field(3, ge=1, le=100, description="passages per search")
    max_steps: int = Field(5, ge=1, le=50, description="actions at the most")
    max_depth: int = Field(3, ge=0, le=10, description="levels below the question")
    max_children: int = Field(2, ge=1, le=10, description="sub-questions of a node")
    similarity: Literal["jaccard", "embedding"] = Field(
        "jaccard", description="of sub-questions: by shared words, or by the retriever's embedder"
    )
    max_similarity: float = Field(
        0.85, gt=0, le=1, description="a sub-question this like another is dropped"
    )
    stop_confidence: float = Field(0.8, ge=0, le=1, description="of the root, to stop at once")
    gate: Literal["ask", "always", "never"] = Field("ask", description="retrieve: ask, or decide")
    rollout: bool = Field(True, description="offer ROLLOUT")
    backtrack: bool = Field(True, description="offer BACKTRACK")
    refine: bool = Field(True, description="refine poor answers to bridge questions")
    joint_confidence: bool = Field(True, description="answer and rate in one call")
    synthesize_when_root_confident: bool = Field(
        False, description="synthesise even where the root's own answer would do"
    )


@PROGRAMS.register("planner")
class PlannerRAG(RAGProgram):
    """Explore a tree of sub-questions action by action, then combine their answers."""

    name = "planner"
    family = "agentic"
    calls = "1 gate + 2 per action (<= max_steps) + 1 synthesis + 1 refinement; 2 if direct"
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
        off = {"ROLLOUT": self.knobs.rollout, "BACKTRACK": self.knobs.backtrack}
        actions = ("SELECT", "TRAVERSE", "ROLLOUT", "BACKTRACK", "STOP")
        offered = Literal[tuple(a for a in actions if off.get(a, True))]  # type: ignore[valid-type]
        self.choose = predict(
            PlannerAction.with_updated_fields("action", type_=offered), like=PlannerAction
        )
        if self.knobs.rollout:
            self.split = predict(Decompose)
        if self.knobs.joint_confidence:
            self.answer = predict(AnswerWithConfidence)
        else:
            self.answer = predict(AnswerWithHints)
            self.rate = predict(RateAnswer)
        self.synthesize = predict(SynthesizeAnswer)
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
        search = _Search(self, trace, tree)
        try:
            reason = search.run()
        except BudgetSpentError:
            reason = "budget"
        answer = self._conclude(trace, tree, question_type) or self.force(trace)
        nodes = [node.model_dump() for node in tree.nodes.values()]
        return trace.prediction(answer, reason, tree=nodes)

    def force(self, trace: Trace) -> str:
        """The model's own answer."""
        return trace.answer(self.direct, last=True, question=trace.question)

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
        solved, root = tree.solved(), tree.root
        if not solved:
            return ""
        confident = root.status == "solved" and (
            root.confidence >= self.knobs.stop_confidence or len(solved) == 1
        )
        if confident and not self.knobs.synthesize_when_root_confident:
            answer = root.answer
        else:
            answer = trace.answer(
                self.synthesize,
                last=True,
                notes=notes_of(solved),
                question=trace.question,
                instruction="",
            )
        if self.knobs.refine and _needs_refining(answer, trace.question, question_type):
            answer = self._refined(trace, solved, answer)
        if is_answer(answer):
            return answer
        best = max(solved, key=lambda n: (n is root, n.confidence))
        return best.answer

    def _refined(self, trace: Trace, solved: list[TreeNode], draft: str) -> str:
        try:
            better = trace.answer(
                self.refine, notes=notes_of(solved), question=trace.question, draft=draft
            )
        except BudgetSpentError:
            better = ""
        if not is_poor(better, trace.question):
            return better
        entity = best_entity(trace.question, solved)
        if entity:
            trace.step("answer", observation=entity, notes={"entity_fallback": True})
            trace.count("entity_fallback")
        return entity or better or draft


def _needs_refining(answer: str, question: str, question_type: str) -> bool:
    if question_type == "bridge":
        return is_poor(answer, question)
    return not question_type and not is_answer(answer)


class _Search:
    """The exploration of one question's tree."""

    def __init__(self, program: PlannerRAG, trace: Trace, tree: Tree) -> None:
        self.program, self.trace, self.tree = program, trace, tree
        self.knobs = program.knobs
        self._asked: set[tuple[str, ...]] = set()
        self._idle = 0

    def run(self) -> StopReason:
        """Act until the root is settled, STOP, or the limit; solve the root if nothing is."""
        reason = self._act()
        if not self.tree.solved():
            self._traverse(self.tree.root)
        return reason

    def _act(self) -> StopReason:
        moves = {
            "SELECT": self._select,
            "TRAVERSE": self._traverse,
            "ROLLOUT": self._rollout,
            "BACKTRACK": self._backtrack,
        }
        for _ in range(self.knobs.max_steps):
            root = self.tree.root
            if root.status == "solved" and root.confidence >= self.knobs.stop_confidence:
                return "answered"
            action, node = self._choose()
            if action == "STOP":
                return "answered"
            changed = moves[action](node)
            self._idle = 0 if changed else self._idle + 1
            if self._idle >= 2:
                deepest = self.tree.deepest_open()
                if deepest is None:
                    return "no_progress"
                self._traverse(deepest)
                self._idle = 0
        return "max_steps"

    def _choose(self) -> tuple[str, TreeNode]:
        tree = self.tree
        reply = self.trace.ask(
            self.program.choose,
            otherwise={"action": "TRAVERSE", "node_id": tree.active},
            question=self.trace.question,
            tree=tree.shown(),
            active_id=tree.active,
        )
        node = tree.node(str(reply.node_id))
        if str(reply.node_id).strip() not in tree.nodes:
            self.trace.count("unknown_node")
        self.trace.step("plan", input=node.id, thought=reply.action)
        return reply.action, node

    def _select(self, node: TreeNode) -> bool:
        if node.status != "solved":
            return self._traverse(node)
        moved = self.tree.active != node.id
        self.tree.active = node.id
        return moved

    def _traverse(self, node: TreeNode) -> bool:
        if node.status == "pruned":
            return False
        self.tree.active = node.id
        known = notes_of(self.tree.known_to(node))
        key = (node.question, *known)
        if key in self._asked:
            return False
        self._asked.add(key)
        query = " ".join([node.question, *(n.answer for n in self.tree.known_to(node))])
        passages = self.trace.search(query, k=self.knobs.k)
        context = render(passages, max_tokens=self.knobs.context_tokens)
        answer, confidence = self._solve(node, context, known)
        if is_answer(answer):
            node.status, node.answer, node.confidence = "solved", answer, confidence
        self.trace.step(
            "solve",
            input=query,
            observation=answer,
            pids=tuple(p.pid for p in passages),
            notes={"node": node.id, "confidence": round(confidence, 4)},
        )
        return True

    def _solve(self, node: TreeNode, context: list[str], known: list[str]) -> tuple[str, float]:
        inputs: dict[str, Any] = {"context": context, "notes": known, "question": node.question}
        reply = self.trace.ask(
            self.program.answer, otherwise={"answer": "", "confidence": 0.0}, **inputs
        )
        answer = str(reply.answer).strip()
        if not self.knobs.joint_confidence and is_answer(answer):
            reply = self.trace.ask(
                self.program.rate, otherwise={"confidence": 0.0}, answer=answer, **inputs
            )
        return answer, unit(reply.get("confidence"))

    def _rollout(self, node: TreeNode) -> bool:
        full = len(self.tree.children(node)) >= self.knobs.max_children
        if node.status == "pruned" or node.depth >= self.knobs.max_depth or full:
            return False
        reply = self.trace.ask(
            self.program.split,
            otherwise={"goal": "", "subtasks": []},
            question=node.question,
            max_tasks=self.knobs.max_children,
        )
        added = self.tree.add(
            node,
            [task.question for task in reply.subtasks],
            most=self.knobs.max_children,
            alike=lambda a, b: self.program.alike(a, b) >= self.knobs.max_similarity,
        )
        self.trace.step(
            "decompose", input=node.question, observation="\n".join(n.question for n in added)
        )
        if added:
            self.tree.active = added[0].id
        return bool(added)

    def _backtrack(self, node: TreeNode) -> bool:
        return self.tree.prune_active()
