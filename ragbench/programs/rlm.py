"""RLM by decomposition: answer a question from its passages, or split it and combine the answers.

This is the recursion of the simplified specification. `rlm_repl` implements the published Recursive
Language Models. Unlike the pseudo-code, this program searches at every node, keeps its memo for one
question only, and stops at `max_depth` (not one level below). A sub-question can use earlier
answers as {1}, {2}, and is rejected if it equals one above it. Each branch gets a share of
`max_calls`, so that the calls do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    predict,
)
from ragbench.programs.core.text import answers_used, one_line, with_answers
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerFromContext, CombineNotes, RecursiveDecompose, TreeNode
from ragbench.text_normalization import question_key

#: Value of `combine` if the last answer is the result.
_LAST = "last"
#: Maximum number of sub-questions of one node.
_MAX_CHILDREN = 5


class RLMKnobs(ProgramKnobs):
    """Knobs of `rlm`."""

    max_calls: int = bounded(22, 1, 10_000, "maximum number of LM calls per question")
    strategy: Literal["binary", "multi", "adaptive"] = Field(
        "binary", description="sub-questions: 2, 5, or as the remaining calls allow"
    )
    max_depth: int = bounded(3, 0, 10, "levels below the question")
    memo: bool = Field(True, description="reuse the answer of a repeated question")


@dataclass
class NodeResult:
    """A node's answer, the calls it took, and the nodes it made."""

    answer: str
    calls: int
    nodes: list[TreeNode]


@dataclass(frozen=True)
class Branch:
    """A node to solve: its question, its position, and its call limit."""

    question: str
    id: str
    calls: int
    depth: int = 0
    ancestors: tuple[str, ...] = ()

    def child(self, number: int, question: str, calls: int) -> Branch:
        """Return a child of this branch.

        Args:
            number: Number of the child.
            question: Text of its question.
            calls: Its budget of calls.
        """
        above = *self.ancestors, question_key(self.question)
        return Branch(question, f"{self.id}.{number}", calls, self.depth + 1, above)

    def solved(self, answer: str, calls: int, below: Sequence[TreeNode] = ()) -> NodeResult:
        """Return the result of this branch.

        Args:
            answer: Answer of the node.
            calls: Number of calls spent.
            below: Nodes below it.
        """
        node = TreeNode(
            id=self.id,
            parent=self.id.rpartition(".")[0],
            depth=self.depth,
            question=self.question,
            status="solved" if is_answer(answer) else "open",
            answer=answer,
        )
        return NodeResult(answer, calls, [node, *below])


@PROGRAMS.register("rlm")
class RLM(RAGProgram[RLMKnobs]):
    """Split the question until its parts can be answered, then combine the answers."""

    def make_predictors(self) -> None:
        self.decompose = predict(RecursiveDecompose)
        self.read = predict(AnswerFromContext)
        self.combine = predict(CombineNotes)

    def solve(self, trace: Trace) -> dspy.Prediction:
        searches = max(trace.budget.max_retrievals, 1)  # every node searches once
        calls = min(trace.budget.calls_left + 1, searches)
        root = self._resolved(trace, Branch(trace.question, "0", calls), {})
        tree = [node.model_dump() for node in root.nodes]
        return trace.prediction(root.answer, "answered", tree=tree)

    def force(self, trace: Trace) -> str:
        return self.answer_from(trace, self.read, trace.passages)

    def _resolved(self, trace: Trace, branch: Branch, memo: dict[str, str]) -> NodeResult:
        """Solve a node from memory, from its passages, or by a split. `memo` gets its answer."""
        key = question_key(branch.question)
        if branch.depth and (not key or key in branch.ancestors):  # after filling
            trace.count("cycle_refused")
            return branch.solved("", 0)
        if self.knobs.memo and key in memo:
            return branch.solved(memo[key], 0)
        passages = trace.search(branch.question, k=self.knobs.k)
        if branch.depth >= self.knobs.max_depth or branch.calls < 4:
            solved = branch.solved(self._leaf(trace, branch, passages), 1)
        else:
            solved = self._decided(trace, branch, passages, memo)
        memo[key] = solved.answer
        return solved

    def _leaf(self, trace: Trace, branch: Branch, passages: Passages) -> str:
        return trace.answer(
            self.read,
            last=not branch.depth,
            context=self.as_context(passages),
            question=branch.question,
        )

    def _decided(
        self, trace: Trace, branch: Branch, passages: list[Passage], memo: dict[str, str]
    ) -> NodeResult:
        """Answer, split or give up a node with one call that sees its passages."""
        breadth = self._breadth(branch)
        reply = trace.ask(
            self.decompose,
            otherwise={"mode": "direct"},
            context=self.as_context(passages),
            question=branch.question,
            depth=branch.depth,
            max_depth=self.knobs.max_depth,
            max_parts=breadth,
        )
        answer = reply.answer
        if question_key(answer) == question_key(branch.question):  # small models do so
            trace.count("echoed_question")
            answer = ""
        questions = _parts(trace, branch, reply.sub_questions[:breadth])
        if reply.mode == "decompose" and questions:
            return self._split(trace, branch, passages, memo, questions, reply.combine)
        if is_answer(answer):
            trace.step("answer", input=branch.question, observation=answer)
            return branch.solved(answer, 1)
        if branch.depth and (reply.mode == "unknown" or answer):  # a refusal after reading
            trace.step("answer", input=branch.question)
            return branch.solved("", 1)
        return branch.solved(self._leaf(trace, branch, passages), 2)

    def _breadth(self, branch: Branch) -> int:
        affordable = branch.calls - 2  # minus this node and its combination
        if self.knobs.strategy == "binary":
            children = 2
        else:
            children = _MAX_CHILDREN
        if self.knobs.strategy == "adaptive":
            levels = self.knobs.max_depth - branch.depth
            fitting = (b for b in range(2, children + 1) if full_tree(b, levels) <= branch.calls)
            children = max(fitting, default=2)
        return int(min(children, affordable))

    def _split(
        self,
        trace: Trace,
        branch: Branch,
        passages: list[Passage],
        memo: dict[str, str],
        questions: Mapping[int, str],
        instruction: str,
    ) -> NodeResult:
        """Solve a node from its sub-questions, or from all passages if none is answered."""
        last_answers = instruction.lower().strip(" .") == _LAST
        combine = {} if last_answers else {"combine": instruction}
        trace.step(
            "decompose",
            input=branch.question,
            observation="\n".join(questions.values()),
            notes={"node": branch.id, **combine},
        )
        before = {passage.pid for passage in trace.passages}
        children = self._children(trace, branch, questions, memo)
        answers = [child.answer for child in children]
        spent = 1 + sum(child.calls for child in children)
        if not any(map(is_answer, answers)):
            new_passages = core.each_once(trace.passages, before)
            answer = self._leaf(trace, branch, [*passages, *new_passages])
            spent += 1
        elif last_answers and is_answer(answers[-1]):
            answer = answers[-1]
        else:
            texts = [child.nodes[0].question for child in children]
            notes = []
            for question, child_answer in zip(texts, answers, strict=True):
                notes.append(f"{question} {child_answer if is_answer(child_answer) else 'unknown'}")
            answer = trace.answer(
                self.combine,
                last=not branch.depth,
                notes=notes,
                question=branch.question,
                instruction=instruction,
            )
            spent += 1
        return branch.solved(answer, spent, [node for child in children for node in child.nodes])

    def _children(
        self, trace: Trace, branch: Branch, questions: Mapping[int, str], memo: dict[str, str]
    ) -> list[NodeResult]:
        calls_left = branch.calls - 2
        if any(map(answers_used, questions.values())):  # in order
            solved: dict[int, NodeResult] = {}
            for n, text in questions.items():
                answers = {number: child.answer for number, child in solved.items()}
                share = calls_left // (len(questions) - len(solved))
                child = branch.child(n, with_answers(text, questions, answers, trace.count), share)
                solved[n] = self._resolved(trace, child, memo)
                calls_left -= solved[n].calls
            return list(solved.values())
        share = calls_left // len(questions)
        # Give each child its own memo so that results do not depend on thread timing.
        jobs = []
        for n, text in questions.items():
            jobs.append((branch.child(n, text, share), dict(memo)))
        at_once = trace.fan_out(lambda job: self._resolved(trace, *job), jobs, calls_each=0)
        for _, own in jobs:
            for key, answer in own.items():
                memo.setdefault(key, answer)
        return at_once


def _parts(trace: Trace, branch: Branch, proposed: Sequence[str]) -> dict[int, str]:
    """Return the valid sub-questions by number, from 1. Placeholders refer to these numbers.

    Blanks, repeats and questions of this node or above it are dropped.
    """
    questions: dict[int, str] = {}
    above = {*branch.ancestors, question_key(branch.question)}
    seen = {""}
    for n, text in enumerate(proposed, start=1):
        key = question_key(text)
        if key in above:
            trace.count("cycle_refused")
        elif key not in seen:
            questions[n] = one_line(text)
            seen.add(key)
    return questions


def full_tree(breadth: int, levels: int) -> int:
    """Return the number of LM calls of a full tree: its nodes and combinations.

    Args:
        breadth: Children per node.
        levels: Levels below the root. Every node above the last level splits.
    """
    nodes = sum(breadth**level for level in range(levels + 1))
    return int(2 * nodes - breadth**levels)
