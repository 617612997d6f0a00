"""Planner: a tree of sub-questions that the model explores action by action.

The design comes from the specification. The two papers that it cites, TreePS-RAG and RAGShaper, do
not have these actions. After a gate, the model chooses every action:

- TRAVERSE solves a node with one search and one call, which also answers the main question if the
  passages settle it.
- ROLLOUT splits a node into sub-questions. A later one refers to the answer of an earlier one as
{1}.
- SELECT makes a node active and solves it if it is open.
- BACKTRACK gives up the active node and moves to its parent.
- STOP ends the search. So does a root solved with `STOP_CONFIDENCE`.
"""

from contextlib import suppress
from itertools import chain
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench import signatures
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    predict,
)
from ragbench.programs.core.confidence import probability
from ragbench.programs.core.program import refuses
from ragbench.programs.planner.tree import SubQuestion, Tree, best_entity, is_poor
from ragbench.retrievers import Passage

#: Confidence of the root that ends the search.
STOP_CONFIDENCE = 0.8


class PlannerKnobs(ProgramKnobs):
    """Knobs of `planner`."""

    k: int = bounded(3, 1, 100, "passages per search")
    max_steps: int = bounded(5, 1, 50, "maximum number of actions, without splits")
    max_depth: int = bounded(3, 0, 10, "levels below the question")
    max_children: int = bounded(2, 1, 10, "sub-questions of a node")
    gate: Literal["ask", "always", "never"] = Field(
        "ask", description="ask the LM to retrieve, or fixed"
    )
    rollout: bool = Field(True, description="offer ROLLOUT")
    backtrack: bool = Field(True, description="offer BACKTRACK")
    refine: bool = Field(True, description="refine poor answers of bridge questions")


@PROGRAMS.register("planner")
class PlannerRAG(RAGProgram[PlannerKnobs]):
    """Explore a tree of sub-questions action by action, then answer from what was found."""

    variants = {"spec": {}}  # noqa: RUF012

    def make_predictors(self) -> None:
        self.decide = predict(signatures.RetrievalPlan)
        self.direct = predict(signatures.DirectAnswer)
        self.choose = predict(_offering(self.knobs), like=signatures.PlannerAction)
        self.answer = predict(signatures.AnswerPart)
        self.synthesize = predict(signatures.AnswerWithHints)
        if self.knobs.refine:
            self.refine = predict(signatures.RefineAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        retrieve, question_type = self._gate(trace)
        if not retrieve:
            return trace.prediction(self.force(trace), "direct")
        exploration = Exploration(trace, self)
        try:
            reason = exploration.run()
        except core.BudgetSpentError:
            reason = "budget"
        answer = self._conclude(trace, exploration.tree, question_type)
        nodes = [node.record() for node in exploration.tree.nodes.values()]
        return trace.prediction(answer, reason, tree=nodes)

    def force(self, trace: Trace) -> str:
        if not trace.passages:
            return trace.answer(self.direct, last=True)
        return self._read(trace, [], trace.passages)

    def _read(self, trace: Trace, notes: list[str], passages: list[Passage]) -> str:
        context = self.as_context(passages)
        return trace.answer(self.synthesize, last=True, context=context, notes=notes)

    def _gate(self, trace: Trace) -> tuple[bool, str]:
        if self.knobs.gate != "ask":
            return self.knobs.gate == "always", ""
        reply = trace.ask(self.decide, otherwise={"retrieve": True, "question_type": ""})
        trace.step(
            "gate",
            observation="retrieve" if reply.retrieve else "answer from memory",
            notes={"question_type": reply.question_type},
        )
        return bool(reply.retrieve), str(reply.question_type)

    def _conclude(self, trace: Trace, tree: Tree, question_type: str) -> str:
        """Return the answer to the main question, never that of a sub-question."""
        answered = [n for n in tree.nodes.values() if n.answer and n.status != "pruned"]
        root = tree.root
        confident = root.status == "solved" and (
            root.confidence >= STOP_CONFIDENCE or tree.solved() == [root]
        )
        notes = [n.note + ("" if n.status == "solved" else " (unsure)") for n in answered]
        proofs = chain.from_iterable(node.passages for node in answered)
        passages = core.each_once([*proofs, *trace.passages])
        if confident:
            answer = root.answer
        elif answered:
            answer = self._read(trace, notes, passages)
        else:
            return self.force(trace)
        poor = not is_answer(answer)
        if question_type:
            poor = question_type == "bridge" and is_poor(answer, trace.question)
        says_so = self.knobs.on_missing == "say_so" and refuses(answer)
        if self.knobs.refine and poor and not says_so:
            context = self.as_context(passages)
            draft = answer
            with suppress(core.BudgetSpentError):
                answer = trace.answer(self.refine, context=context, notes=notes, draft=draft)
            if is_poor(answer, trace.question):  # use the most frequent name
                if entity := best_entity(trace.question, answered):
                    trace.step("answer", observation=entity, notes={"entity_fallback": True})
                    trace.count("entity_fallback")
                answer = entity or answer or draft
        if is_answer(answer):
            return answer
        return root.answer or answer


class Exploration:
    """Actions on the tree of one question until it is settled or a limit is reached."""

    def __init__(self, trace: Trace, program: PlannerRAG) -> None:
        self.trace = trace
        self.program = program
        self.knobs = program.knobs
        self.tree = Tree(trace.question)
        self._asked: set[tuple[str, ...]] = set()
        self._idle = self._steps = 0

    @property
    def settled(self) -> bool:
        root = self.tree.root
        children = self.tree.children(self.tree.root)
        if root.status == "solved" and root.confidence >= STOP_CONFIDENCE:
            return True
        return bool(children) and all(child.status == "solved" for child in children)

    def run(self) -> core.StopReason:
        """Act until the root is settled, STOP, or the limit. Then solve the root if needed."""
        reason = self._act()
        if not self.tree.solved():
            self._traverse(self.tree.root)
        return reason

    def _act(self) -> core.StopReason:
        while self._steps < self.knobs.max_steps:
            if self.settled:
                return "answered"
            action, node, questions = self._choose()
            if action == "STOP":
                return "answered"
            changed = self._do(action, node, questions)
            self._idle = 0 if changed else self._idle + 1
            self._steps += not changed  # actions that change something count themselves
            if self._idle >= 2:
                open_nodes = [n for n in self.tree.nodes.values() if n.status == "open"]
                deepest = max(open_nodes, key=lambda n: n.depth, default=None)  # the first one
                if deepest is None or not self._traverse(deepest):
                    return "no_progress"
                self._idle = 0
        if self.settled:
            return "answered"
        return "max_steps"

    def _choose(self) -> tuple[str, SubQuestion, list[str]]:
        room: dict[str, Any] = {"max_parts": self.knobs.max_children} if self.knobs.rollout else {}
        reply = self.trace.ask(
            self.program.choose,
            otherwise={"action": "TRAVERSE", "node_id": self.tree.active},
            tree=self.tree.lines(),
            active_id=self.tree.active,
            actions_left=self.knobs.max_steps - self._steps,
            **room,
        )
        node = self.tree.nodes.get(str(reply.node_id).strip())
        if node is None:
            self.trace.count("unknown_node")
            node = self.tree.nodes[self.tree.active]
        self.trace.step("plan", input=node.id, observation=reply.action)
        return reply.action, node, list(reply.get("sub_questions") or [])

    def _do(self, action: str, node: SubQuestion, questions: list[str]) -> bool:
        if action == "ROLLOUT":
            return self._rollout(node, questions)
        if action == "TRAVERSE" or (action == "SELECT" and node.status != "solved"):
            return self._traverse(node)
        moved = self.tree.active != node.id
        if action == "SELECT":
            self.tree.active = node.id
        else:
            moved = self.tree.prune_active()
        self._steps += moved
        return moved

    def _rollout(self, node: SubQuestion, questions: list[str]) -> bool:
        """Split `node`. A split is not a step, because each of its parts takes one."""
        full = len(self.tree.children(node)) >= self.knobs.max_children
        if node.status == "pruned" or node.depth >= self.knobs.max_depth or full:
            return False
        added = self.tree.add(node, questions, most=self.knobs.max_children)
        split = "\n".join(n.question for n in added)
        if node.refused:
            self.trace.count("split_refused")
        self.trace.step(
            "decompose", input=node.question, observation=split or f"refused: {node.refused}"
        )
        if added:
            self.tree.active = added[0].id
        return bool(added)

    def _traverse(self, node: SubQuestion) -> bool:
        """Search for `node` and answer it. Return False if nothing changed since then."""
        if node.status == "pruned":
            return False
        tree = self.tree
        trace = self.trace
        tree.active = node.id
        earlier = tree.known_to(node)
        question = tree.asked(node, trace.count)
        key = (question, *(n.note for n in earlier))
        if key in self._asked:
            return False
        self._asked.add(key)
        self._steps += 1
        node.tries += 1
        node.filled = question
        solved = [n.answer for n in tree.children(node) if n.status == "solved"]
        query = " ".join([question, *solved])
        passages = trace.search(query, k=self.knobs.k)
        context = core.each_once([*passages, *(p for n in reversed(earlier) for p in n.passages)])
        reply = trace.ask(
            self.program.answer,
            otherwise={"confidence": 0.5},
            context=self.program.as_context(context),
            notes=[n.note for n in earlier],
            main_question=trace.question,
            question=question,
        )
        answer = reply.answer
        main = reply.main_answer
        confidence = probability(reply.confidence)
        if node is tree.root:
            # The root's question is also the main question, so the call answers it twice. Only the
            # second answer follows `answer_style`. If that is brief, small models name the subject
            # there: for "Are A and B both board games?" they gave "Yes" and then "board game".
            keeps_wording = self.knobs.answer_style == "brief" and is_answer(answer)
            answer = answer if keeps_wording or not is_answer(main) else main
        node.learn(answer, confidence, context)
        tree.close_above(node)
        # An answer that only repeats this one does not settle the question while others are open.
        sure = is_answer(main) and confidence >= STOP_CONFIDENCE
        fresh = main != node.answer or not tree.has_open_leaf()
        settles = bool(node.parent and sure and fresh)
        if settles:
            tree.root.learn(main, confidence, context)
        notes = {"node": node.id, "confidence": round(confidence, 4), "settles": settles}
        trace.step("solve", input=query, observation=answer, of=passages, notes=notes)
        return True


def _offering(knobs: PlannerKnobs) -> type[dspy.Signature]:
    off = {"ROLLOUT": knobs.rollout, "BACKTRACK": knobs.backtrack}
    offered = {}
    for name, does in signatures.PLANNER_ACTIONS.items():
        if off.get(name, True):
            offered[name] = does
    signature: type[dspy.Signature] = signatures.PlannerAction.with_updated_fields(
        "action",
        type_=Literal[tuple(offered)],
        desc=" ".join(f"{name}: {does}" for name, does in offered.items()),
    )
    if not knobs.rollout:
        signature = signature.delete("max_parts").delete("sub_questions")
    return signature
