"""RLM by decomposition: a question is answered from its passages, or split and combined.

The recursion of the simplified specification, without code or variables; Recursive Language Models
as published are `rlm_repl`, another system with other prompts and costs. Unlike the pseudo-code
this searches at every node, keeps its memo for one question only, stops at `max_depth` (not one
below it), lets a sub-question use earlier answers as {1}, {2}, refuses a sub-question that equals
one above it, and gives each branch a share of `max_calls`, so that what is asked does not depend on
timing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import dspy
from pydantic import Field

from ragbench.data import question_key
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    Trace,
    answers_used,
    is_answer,
    predict,
    render,
    with_answers,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import (
    AnswerFromContext,
    RecursiveDecompose,
    SynthesizeAnswer,
    TreeNode,
)


class RLMKnobs(ProgramKnobs):
    """Knobs of `rlm`."""

    max_calls: int = Field(22, ge=1, le=10_000, description="LM calls per question at the most")
    strategy: Literal["binary", "multi", "adaptive"] = Field(
        "binary", description="sub-questions: 2, max_children, or what the calls left can pay for"
    )
    max_depth: int = Field(3, ge=0, le=10, description="levels below the question")
    max_children: int = Field(5, ge=2, le=20, description="sub-questions of one node")
    sequential_children: bool = Field(
        True, description="solve in order where one uses the answer of another"
    )
    memo: bool = Field(True, description="ask a sub-question once")


@PROGRAMS.register("rlm")
class RLM(RAGProgram[RLMKnobs]):
    """Split the question until its parts can be answered, then combine the answers."""

    name = "rlm"
    family = "rlm"
    paper = "arXiv:2512.24601"
    calls = "nodes + splits (<= max_calls, 22)"
    autonomy = Autonomy("partly", "yes", "yes")

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.decompose = predict(RecursiveDecompose)
        self.read = predict(AnswerFromContext)
        self.combine = predict(SynthesizeAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """The root, solved; answered by its own passages where all else came to nothing."""
        recursion = Recursion(
            trace, self.knobs, decompose=self.decompose, read=self.read, combine=self.combine
        )
        solved = recursion.run()
        tree = [node.model_dump() for node in solved.nodes]
        return trace.prediction(solved.answer, "answered", tree=tree)

    def force(self, trace: Trace) -> str:
        """An answer from all passages so far."""
        return self.answer_from(trace, self.read, trace.passages)


@dataclass
class Solved:
    """A node's answer, the calls it took, and the nodes it made."""

    answer: str
    calls: int
    nodes: list[TreeNode] = field(default_factory=list)


@dataclass(frozen=True)
class Branch:
    """A node to be solved: what it asks, where it stands, and the calls it may spend."""

    question: str
    id: str
    calls: int
    depth: int = 0
    ancestors: tuple[str, ...] = ()

    def child(self, number: int, question: str, calls: int) -> Branch:
        """The branch of sub-question `number`, which may spend `calls`."""
        key = question_key(self.question)
        return Branch(
            question, f"{self.id}.{number}", calls, self.depth + 1, (*self.ancestors, key)
        )

    def node(self, answer: str) -> TreeNode:
        """What the record keeps of it."""
        return TreeNode(
            id=self.id,
            parent=self.id.rpartition(".")[0],
            depth=self.depth,
            question=self.question,
            status="solved" if is_answer(answer) else "open",
            answer=answer,
        )


#: What a split says of its combination where none is needed.
_LAST = "last"


class Recursion:
    """The recursion of one question."""

    def __init__(
        self,
        trace: Trace,
        knobs: RLMKnobs,
        *,
        decompose: dspy.Module,
        read: dspy.Module,
        combine: dspy.Module,
    ) -> None:
        self.trace, self.knobs = trace, knobs
        self._decompose, self._read, self._combine = decompose, read, combine

    def run(self) -> Solved:
        """The root, solved; answered by its own passages where all else came to nothing."""
        trace = self.trace
        searches = max(trace.budget.max_retrievals, 1)  # every node searches once
        calls = min(trace.budget.calls_left + 1, searches)
        return self._solve(Branch(trace.question, "0", calls), {})

    def _solve(self, branch: Branch, memo: dict[str, str]) -> Solved:
        key = question_key(branch.question)
        if branch.depth and (not key or key in branch.ancestors):  # once placeholders are filled
            self.trace.count("cycle_refused")
            return Solved("", 0, [branch.node("")])
        if self.knobs.memo and key in memo:
            self.trace.count("memo_hit")
            return Solved(memo[key], 0, [branch.node(memo[key])])
        passages = self.trace.search(branch.question, k=self.knobs.k)
        if branch.depth >= self.knobs.max_depth or branch.calls < 4:
            answer = self._leaf(branch, passages)
            solved = Solved(answer, 1, [branch.node(answer)])
        else:
            solved = self._decide(branch, passages, memo)
        memo[key] = solved.answer
        return solved

    def _decide(self, branch: Branch, passages: list[Passage], memo: dict[str, str]) -> Solved:
        breadth = self._breadth(branch)
        reply = self.trace.ask(
            self._decompose,
            otherwise={"mode": "direct", "answer": "", "sub_questions": [], "combine": ""},
            context=self._shown(passages),
            question=branch.question,
            depth=branch.depth,
            max_depth=self.knobs.max_depth,
            max_parts=breadth,
        )
        answer = str(reply.answer or "").strip()
        if question_key(answer) == question_key(branch.question):  # as small models do
            self.trace.count("echoed_question")
            answer = ""
        parts = self._parts(branch, list(reply.sub_questions or [])[:breadth])
        split = reply.mode == "decompose" and bool(parts)
        if is_answer(answer) and not split:
            self.trace.step("answer", input=branch.question, observation=answer)
            return Solved(answer, 1, [branch.node(answer)])
        if split:
            instruction = str(reply.combine or "").strip()
            return self._split(branch, passages, memo, parts, instruction)
        if branch.depth and (reply.mode == "unknown" or answer):  # a refusal, of what was just read
            self.trace.step("answer", input=branch.question)
            return Solved("", 1, [branch.node("")])
        answer = self._leaf(branch, passages)
        return Solved(answer, 2, [branch.node(answer)])

    def _leaf(self, branch: Branch, passages: Sequence[Passage]) -> str:
        return self.trace.answer(
            self._read,
            last=not branch.depth,
            context=self._shown(passages),
            question=branch.question,
        )

    def _shown(self, passages: Sequence[Passage]) -> list[str]:
        return render(passages, max_tokens=self.knobs.context_tokens)

    def _parts(self, branch: Branch, proposed: Sequence[str]) -> dict[int, str]:
        """The sub-questions worth asking, by their number from 1, which placeholders refer to.

        Left out are blanks, repetitions and what is already asked at this node or above it.
        """
        parts: dict[int, str] = {}
        above, asked = {*branch.ancestors, question_key(branch.question)}, {""}
        for n, text in enumerate(proposed, start=1):
            key = question_key(text)
            if key in above:
                self.trace.count("cycle_refused")
            elif key not in asked:
                parts[n] = " ".join(text.split())
                asked.add(key)
        return parts

    def _breadth(self, branch: Branch) -> int:
        affordable = branch.calls - 2  # this node and its combination; a child costs at least one
        if self.knobs.strategy == "adaptive":
            levels = self.knobs.max_depth - branch.depth
            widest = [b for b in range(2, self.knobs.max_children + 1)]
            wanted = max([b for b in widest if full_tree(b, levels) <= branch.calls], default=2)
        else:
            wanted = 2 if self.knobs.strategy == "binary" else self.knobs.max_children
        return int(min(wanted, affordable))

    def _split(
        self,
        branch: Branch,
        passages: list[Passage],
        memo: dict[str, str],
        parts: Mapping[int, str],
        instruction: str,
    ) -> Solved:
        self.trace.step(
            "decompose",
            input=branch.question,
            thought=instruction,
            observation="\n".join(parts.values()),
            notes={"node": branch.id},
        )
        before = {passage.pid for passage in self.trace.passages}
        children = self._children(branch, parts, memo)
        spent = 1 + sum(child.calls for child in children)
        if not any(is_answer(child.answer) for child in children):
            self.trace.count("no_child_answered")
            more = [p for p in self.trace.passages if p.pid not in before]
            answer = self._leaf(branch, [*passages, *more])
            spent += 1
        elif instruction.lower().strip(" .") == _LAST and is_answer(children[-1].answer):
            answer = children[-1].answer
        else:
            answer = self._combined(branch, children, instruction)
            spent += 1
        nodes = [branch.node(answer), *(node for child in children for node in child.nodes)]
        return Solved(answer, spent, nodes)

    def _children(
        self, branch: Branch, parts: Mapping[int, str], memo: dict[str, str]
    ) -> list[Solved]:
        left, count = branch.calls - 2, self.trace.count
        if self.knobs.sequential_children and any(map(answers_used, parts.values())):
            solved: dict[int, Solved] = {}
            for n, part in parts.items():
                answers = {number: child.answer for number, child in solved.items()}
                share = left // (len(parts) - len(solved))
                child = branch.child(n, with_answers(part, parts, answers, count), share)
                solved[n] = self._solve(child, memo)
                left -= solved[n].calls
            return list(solved.values())
        share = left // len(parts)
        # Each child has a memo of its own, for else it would matter which is faster.
        jobs = [
            (branch.child(n, with_answers(part, parts, {}, count), share), dict(memo))
            for n, part in parts.items()
        ]
        at_once = self.trace.fan_out(lambda job: self._solve(*job), jobs, calls_each=0)
        for _, own in jobs:
            for key, answer in own.items():
                memo.setdefault(key, answer)
        return at_once

    def _combined(self, branch: Branch, children: list[Solved], instruction: str) -> str:
        notes = [
            f"{child.nodes[0].question} {child.answer if is_answer(child.answer) else 'unknown'}"
            for child in children
        ]
        return self.trace.answer(
            self._combine,
            last=not branch.depth,
            notes=notes,
            question=branch.question,
            instruction=instruction,
        )


def full_tree(breadth: int, levels: int) -> int:
    """LM calls of a tree in which every node above the last level splits: nodes + combinations."""
    widths = [1]
    for _ in range(levels):
        widths.append(widths[-1] * breadth)
    return sum(widths) + sum(widths[:-1])
