"""The exploration of one question's tree, action by action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dspy

from ragbench.programs.core import StopReason, Trace, is_answer, render, unit
from ragbench.programs.planner.tree import Node, Tree, without_repeats


@dataclass(frozen=True)
class Parts:
    """The predictors of an exploration, and how like two sub-questions are, at most 1."""

    choose: dspy.Module
    answer: dspy.Module
    rate: dspy.Module | None
    alike: Callable[[str, str], float]


class Exploration:
    """Acts on the tree of one question until the question is settled or the limit is reached."""

    def __init__(self, parts: Parts, trace: Trace, knobs: Any, tree: Tree) -> None:
        self.parts, self.trace, self.knobs, self.tree = parts, trace, knobs, tree
        self._asked: set[tuple[str, ...]] = set()
        self._idle = self._steps = 0

    @property
    def settled(self) -> bool:
        """Whether the root has an answer of enough confidence."""
        root = self.tree.root
        return root.status == "solved" and root.confidence >= self.knobs.stop_confidence

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
            if self.settled or self._all_parts_solved():
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
        return "answered" if self.settled or self._all_parts_solved() else "max_steps"

    def _all_parts_solved(self) -> bool:
        parts = self.tree.children(self.tree.root)
        return bool(parts) and all(part.status == "solved" for part in parts)

    def _choose(self) -> tuple[str, Node, list[str]]:
        tree, knobs = self.tree, self.knobs
        reply = self.trace.ask(
            self.parts.choose,
            otherwise={"action": "TRAVERSE", "node_id": tree.active, "sub_questions": []},
            question=self.trace.question,
            tree=tree.lines(),
            active_id=tree.active,
            **({"max_parts": knobs.max_children} if knobs.rollout else {}),
        )
        node = tree.node(str(reply.node_id))
        if str(reply.node_id).strip() not in tree.nodes:
            self.trace.count("unknown_node")
        self.trace.step("plan", input=node.id, thought=reply.action)
        return reply.action, node, list(reply.get("sub_questions") or [])

    def _do(self, action: str, node: Node, questions: list[str]) -> bool:
        """Whether the action changed anything."""
        if action == "ROLLOUT":
            return self._rollout(node, questions)
        if action == "BACKTRACK":
            changed = self.tree.prune_active()
            self._steps += changed
            return changed
        if action == "SELECT" and node.status == "solved":
            moved = self.tree.active != node.id
            self.tree.active = node.id
            self._steps += moved
            return moved
        return self._traverse(node)

    def _rollout(self, node: Node, questions: list[str]) -> bool:
        """Split `node`; a split counts as no step, since each of its parts takes one."""
        full = len(self.tree.children(node)) >= self.knobs.max_children
        if node.status == "pruned" or node.depth >= self.knobs.max_depth or full:
            return False
        added = self.tree.add(
            node,
            questions,
            most=self.knobs.max_children,
            alike=lambda a, b: self.parts.alike(a, b) >= self.knobs.max_similarity,
        )
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
        query = tree.query(node, question)
        key = (question, *(n.note for n in known))
        if key in self._asked:
            return False
        self._asked.add(key)
        self._steps += 1
        node.tries += 1
        node.filled = question
        passages = trace.search(query, k=self.knobs.k)
        shown = without_repeats([*passages, *(p for n in reversed(known) for p in n.passages)])
        answer, confidence, main = self._solve(
            context=render(shown, max_tokens=self.knobs.context_tokens),
            notes=[n.note for n in known],
            question=question,
        )
        if node is tree.root:
            answer = self._roots_own(answer, main)
        node.learn(answer, confidence, shown, at=self.knobs.solved_confidence)
        tree.close_above(node)
        settles = self._settles(node, main, confidence)
        if settles:
            tree.root.learn(main, confidence, shown, at=self.knobs.solved_confidence)
        trace.step(
            "solve",
            input=query,
            observation=answer,
            pids=tuple(p.pid for p in passages),
            notes={"node": node.id, "confidence": round(confidence, 4), "settles": settles},
        )
        return True

    def _roots_own(self, answer: str, main: str) -> str:
        """The answer to the root, whose question is the main one and so was asked twice.

        The second has the wording of `answer_style`, but small models tell its subject there: the
        1.5B model answered "Are A and B both board games?" by "Yes" and then "board game".
        """
        first = self.knobs.answer_style == "brief" and is_answer(answer)
        return answer if first or not is_answer(main) else main

    def _settles(self, node: Node, main: str, confidence: float) -> bool:
        """Whether `main`, said of the main question in solving `node`, is to be believed.

        Not while other sub-questions are open if it only repeats this one's answer.
        """
        if not node.parent or not is_answer(main) or confidence < self.knobs.stop_confidence:
            return False
        return main != node.answer or not self.tree.open_leaves()

    def _solve(
        self, *, context: list[str], notes: list[str], question: str
    ) -> tuple[str, float, str]:
        """Answer and confidence of a sub-question, and the main answer where it is settled."""
        inputs: dict[str, Any] = {"context": context, "notes": notes, "question": question}
        if self.parts.rate is None:
            reply = self.trace.ask(
                self.parts.answer,
                otherwise={"answer": "", "confidence": 0.5, "main_answer": ""},
                main_question=self.trace.question,
                **inputs,
            )
            main = str(reply.get("main_answer") or "").strip()
            return str(reply.answer or "").strip(), unit(reply.get("confidence")), main
        reply = self.trace.ask(self.parts.answer, otherwise={"answer": ""}, **inputs)
        answer = str(reply.answer or "").strip()
        if not is_answer(answer):
            return answer, 0.0, ""
        rated = self.trace.ask(
            self.parts.rate, otherwise={"confidence": 0.5}, answer=answer, **inputs
        )
        return answer, unit(rated.get("confidence")), ""
