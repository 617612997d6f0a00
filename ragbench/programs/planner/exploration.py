"""The exploration of one question's tree, action by action."""

from __future__ import annotations

from typing import Any

import dspy

from ragbench.programs.core import StopReason, Trace, is_answer, render, unit
from ragbench.programs.planner.knobs import PlannerKnobs
from ragbench.programs.planner.tree import Node, Tree, without_repeats

#: Of an answer, for its node to count as solved.
SOLVED = 0.3


class Exploration:
    """Acts on the tree of one question until the question is settled or the limit is reached.

    `choose` names the next action, `answer` answers a sub-question.
    """

    def __init__(
        self, trace: Trace, knobs: PlannerKnobs, *, choose: dspy.Module, answer: dspy.Module
    ) -> None:
        self.trace, self.knobs, self.tree = trace, knobs, Tree(trace.question)
        self._ask_action, self._ask_answer = choose, answer
        self._asked: set[tuple[str, ...]] = set()
        self._idle = self._steps = 0

    @property
    def settled(self) -> bool:
        """Whether the root has an answer of enough confidence, or each of its parts has one."""
        root, parts = self.tree.root, self.tree.children(self.tree.root)
        if root.status == "solved" and root.confidence >= self.knobs.stop_confidence:
            return True
        return bool(parts) and all(part.status == "solved" for part in parts)

    def run(self, *, one_fact: bool) -> StopReason:
        """Act until the root is settled, STOP, or the limit; solve the root if nothing is solved.

        With `one_fact` the first action is to solve the root.
        """
        if one_fact:
            self._traverse(self.tree.root)
        reason = self._act()
        if not self.tree.solved():
            self._traverse(self.tree.root)
        return reason

    def _act(self) -> StopReason:
        while self._steps < self.knobs.max_steps:
            if self.settled:
                return "answered"
            due = None if self.knobs.ask_always else self.tree.due()
            if due is not None:
                self._traverse(due)
                continue
            action, node, questions = self._choose()
            if action == "STOP":
                return "answered"
            changed = self._do(action, node, questions)
            self._idle = 0 if changed else self._idle + 1
            self._steps += not changed  # what changes something is counted where it is done
            if self._idle >= 2:
                deepest = self.tree.deepest_open()
                if deepest is None or not self._traverse(deepest):
                    return "no_progress"
                self._idle = 0
        return "answered" if self.settled else "max_steps"

    def _choose(self) -> tuple[str, Node, list[str]]:
        room: dict[str, Any] = {"max_parts": self.knobs.max_children} if self.knobs.rollout else {}
        reply = self.trace.ask(
            self._ask_action,
            otherwise={"action": "TRAVERSE", "node_id": self.tree.active, "sub_questions": []},
            question=self.trace.question,
            tree=self.tree.lines(),
            active_id=self.tree.active,
            **room,
        )
        node = self.tree.node(str(reply.node_id))
        if str(reply.node_id).strip() not in self.tree.nodes:
            self.trace.count("unknown_node")
        self.trace.step("plan", input=node.id, thought=reply.action)
        return reply.action, node, list(reply.get("sub_questions") or [])

    def _do(self, action: str, node: Node, questions: list[str]) -> bool:
        """Whether the action changed anything."""
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

    def _rollout(self, node: Node, questions: list[str]) -> bool:
        """Split `node`; a split counts as no step, since each of its parts takes one."""
        full = len(self.tree.children(node)) >= self.knobs.max_children
        if node.status == "pruned" or node.depth >= self.knobs.max_depth or full:
            return False
        most, alike = self.knobs.max_children, self.knobs.max_similarity
        added = self.tree.add(node, questions, most=most, alike=alike)
        self.trace.step(
            "decompose", input=node.question, observation="\n".join(n.question for n in added)
        )
        if added:
            self.tree.active = added[0].id
            if not self.trace.counts["questions_with_rollout"]:
                self.trace.count("questions_with_rollout")
        return bool(added)

    def _traverse(self, node: Node) -> bool:
        """Search for `node` and answer it; False where that was done with the same knowledge."""
        if node.status == "pruned":
            return False
        tree, trace = self.tree, self.trace
        tree.active = node.id
        known = tree.known_to(node)
        question = tree.asked(node, trace.count)
        key = (question, *(n.note for n in known))
        if key in self._asked:
            return False
        self._asked.add(key)
        self._steps += 1
        node.tries += 1
        node.filled = question
        query = tree.query(node, question)
        passages = trace.search(query, k=self.knobs.k)
        shown = without_repeats([*passages, *(p for n in reversed(known) for p in n.passages)])
        reply = trace.ask(
            self._ask_answer,
            otherwise={"answer": "", "confidence": 0.5, "main_answer": ""},
            context=render(shown, max_tokens=self.knobs.context_tokens),
            notes=[n.note for n in known],
            main_question=trace.question,
            question=question,
        )
        answer, main = str(reply.answer or "").strip(), str(reply.main_answer or "").strip()
        confidence = unit(reply.confidence)
        if node is tree.root:
            # The root's question is the main one and so was asked twice. The second answer has the
            # wording of `answer_style`, but where that is brief a small model tells its subject
            # there: "Are A and B both board games?" was answered by "Yes" and then "board game".
            first = self.knobs.answer_style == "brief" and is_answer(answer)
            answer = answer if first or not is_answer(main) else main
        node.learn(answer, confidence, shown, at=SOLVED)
        tree.close_above(node)
        settles = self._settles(node, main, confidence)
        if settles:
            tree.root.learn(main, confidence, shown, at=SOLVED)
        trace.step(
            "solve",
            input=query,
            observation=answer,
            pids=tuple(p.pid for p in passages),
            notes={"node": node.id, "confidence": round(confidence, 4), "settles": settles},
        )
        return True

    def _settles(self, node: Node, main: str, confidence: float) -> bool:
        """Whether `main`, said of the main question in solving `node`, is to be believed.

        Not while other sub-questions are open if it only repeats this one's answer.
        """
        if not node.parent or not is_answer(main) or confidence < self.knobs.stop_confidence:
            return False
        return main != node.answer or not self.tree.open_leaves()
