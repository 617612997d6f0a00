"""RLM: three different systems under one name.

- `decompose`: the simplified specification. A question is answered from its own passages or split
  into sub-questions, which are solved the same way and combined. No code, no variables. Unlike the
  specification's pseudo-code it searches at every node, keeps its memo for one question only, stops
  at `max_depth` (not one below it), lets a sub-question use earlier answers as {1}, {2}, refuses a
  sub-question that equals one above it, and gives each branch a share of `max_calls`, so that what
  is asked does not depend on timing.
- `repl_corpus`: Recursive Language Models (Zhang, Kraska and Khattab 2025, arXiv:2512.24601) as
  published: the passages are a variable in a Python REPL, and the model writes code to look at
  them, with `llm_query` for parts of them. No search: report no retrieval scores.
- `repl_tools`: the same loop over the question's top k, with `search` and `read` as tools.

They share neither prompts nor costs: never average or compare them as one system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import dspy
from pydantic import Field

from ragbench.data.base import question_key
from ragbench.programs.base import PROGRAMS, Autonomy, Described, ProgramKnobs, RAGProgram, predict
from ragbench.programs.drivers import is_answer
from ragbench.programs.rlm_repl import SUB, EndedError, TracedRLM, read, search, session
from ragbench.programs.rlm_tree import PLACEHOLDER, Branch, Solved, full_tree, with_answers
from ragbench.programs.sandbox import Limits
from ragbench.programs.trace import BudgetSpentError, Trace, render
from ragbench.retrievers.base import Retriever
from ragbench.signatures.answering import AnswerFromContext, SynthesizeAnswer
from ragbench.signatures.planning import RecursiveDecompose

_REPL = {"max_calls": 71}


class RLMKnobs(ProgramKnobs):
    """Knobs of `rlm`."""

    max_calls: int = Field(22, ge=1, le=10_000, description="LM calls per question at the most")
    strategy: Literal["binary", "multi", "adaptive"] = Field(
        "binary", description="sub-questions: 2, max_children, or what the calls left can pay for"
    )
    max_depth: int = Field(3, ge=0, le=10, description="levels below the question (decompose)")
    max_children: int = Field(5, ge=2, le=20, description="sub-questions of one node (decompose)")
    sequential_children: bool = Field(
        True, description="solve in order where one uses the answer of another (decompose)"
    )
    max_turns: int = Field(20, ge=1, le=100, description="blocks of code (repl)")
    max_sub_calls: int = Field(50, ge=0, le=1000, description="llm_query calls (repl)")
    max_variable: int = Field(2000, ge=1, description="passages in the variable (repl_corpus)")
    output_chars: int = Field(
        3000, ge=100, le=1_000_000, description="printed by one block of code (repl)"
    )
    code_seconds: float = Field(5.0, gt=0, le=600, description="running time of a block (repl)")
    code_memory_mb: int = Field(256, ge=8, le=65_536, description="memory of the sandbox (repl)")


@PROGRAMS.register("rlm")
class RLM(RAGProgram):
    """Split the question, or explore its passages with code, until it can be answered."""

    name = "rlm"
    family = "rlm"
    paper = "arXiv:2512.24601"
    calls = (
        "decompose: nodes + splits (<= max_calls, 22); repl: turns (<= 20) + llm_query (<= 50) + 1"
    )
    autonomy = Autonomy("partly", "yes", "yes")
    Knobs = RLMKnobs
    variants = {"decompose": {}, "repl_corpus": _REPL, "repl_tools": _REPL}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.variant == "decompose":
            self.decompose = predict(RecursiveDecompose)
            self.read = predict(AnswerFromContext)
            self.combine = predict(SynthesizeAnswer)
        else:
            self.repl = TracedRLM(
                tools=[search, read] if self.knobs.variant == "repl_tools" else [],
                limits=Limits(
                    seconds=self.knobs.code_seconds,
                    memory_mb=self.knobs.code_memory_mb,
                    output_chars=self.knobs.output_chars,
                ),
                max_turns=self.knobs.max_turns,
                max_sub_calls=self.knobs.max_sub_calls,
                prompt_chars=4 * self.knobs.context_tokens,
            )

    def other_calls(self) -> Sequence[Described]:
        """Those of `llm_query`, in the repl variants."""
        return () if self.knobs.variant == "decompose" else (SUB,)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Recursion, or the REPL loop."""
        if self.knobs.variant != "decompose":
            return self._explore(trace)
        searches = max(trace.budget.max_retrievals, 1)  # every node searches once
        calls = min(trace.budget.calls_left + 1, searches)
        root = Branch(trace.question, "0", calls)
        solved = self._solve(trace, root, {})
        return trace.prediction(
            solved.answer, "answered", tree=[node.model_dump() for node in solved.nodes]
        )

    def force(self, trace: Trace) -> str:
        """An answer from all passages so far, or from the code that was run."""
        if self.knobs.variant != "decompose":
            return self.repl.forced(trace, self._variable(trace))
        context = render(trace.passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(self.read, last=True, context=context, question=trace.question)

    # -- decompose

    def _solve(self, trace: Trace, branch: Branch, memo: dict[str, str]) -> Solved:
        key = question_key(branch.question)
        if branch.depth and (not key or key in branch.ancestors):  # once placeholders are filled
            trace.count("cycle_refused")
            return Solved("", 0, [branch.node("")])
        if key in memo:
            trace.count("memo_hit")
            return Solved(memo[key], 0, [branch.node(memo[key])])
        found = trace.search(branch.question, k=self.knobs.k)
        context = render(found, max_tokens=self.knobs.context_tokens)
        if branch.depth >= self.knobs.max_depth or branch.calls < 4:
            answer = self._leaf(trace, branch, context)
            solved = Solved(answer, 1, [branch.node(answer)])
        else:
            solved = self._decide(trace, branch, context, memo)
        memo[key] = solved.answer
        return solved

    def _decide(
        self, trace: Trace, branch: Branch, context: list[str], memo: dict[str, str]
    ) -> Solved:
        breadth = self._breadth(branch)
        reply = trace.ask(
            self.decompose,
            otherwise={"mode": "direct", "answer": "", "sub_questions": [], "combine": ""},
            context=context,
            question=branch.question,
            depth=branch.depth,
            max_depth=self.knobs.max_depth,
            max_parts=breadth,
        )
        answer = reply.answer.strip()
        if question_key(answer) == question_key(branch.question):  # as small models do
            trace.count("echoed_question")
            answer = ""
        parts = self._parts(trace, branch, reply.sub_questions[:breadth])
        if answer and (reply.mode == "direct" or not parts):
            trace.step("answer", input=branch.question, observation=answer)
            return Solved(answer, 1, [branch.node(answer)])
        if reply.mode == "direct" or not parts:
            answer = self._leaf(trace, branch, context)
            return Solved(answer, 2, [branch.node(answer)])
        trace.step(
            "decompose",
            input=branch.question,
            thought=reply.combine,
            observation="\n".join(parts.values()),
            notes={"node": branch.id},
        )
        solved = self._children(trace, branch, parts, memo)
        return self._combine(trace, branch, solved, reply.combine)

    def _leaf(self, trace: Trace, branch: Branch, context: list[str]) -> str:
        return trace.answer(
            self.read, last=not branch.depth, context=context, question=branch.question
        )

    def _parts(self, trace: Trace, branch: Branch, proposed: Sequence[str]) -> dict[int, str]:
        """The sub-questions worth asking, by their number from 1, which placeholders refer to.

        Left out are blanks, repetitions and what is already asked at this node or above it.
        """
        parts: dict[int, str] = {}
        above, asked = {*branch.ancestors, question_key(branch.question)}, {""}
        for n, text in enumerate(proposed, start=1):
            key = question_key(text)
            if key in above:
                trace.count("cycle_refused")
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

    def _children(
        self, trace: Trace, branch: Branch, parts: Mapping[int, str], memo: dict[str, str]
    ) -> list[Solved]:
        left = branch.calls - 2
        if self.knobs.sequential_children and any(map(PLACEHOLDER.search, parts.values())):
            solved: dict[int, Solved] = {}
            for n, part in parts.items():
                answers = {number: child.answer for number, child in solved.items()}
                share = left // (len(parts) - len(solved))
                child = branch.child(n, with_answers(part, parts, answers, trace), share)
                solved[n] = self._solve(trace, child, memo)
                left -= solved[n].calls
            return list(solved.values())
        share = left // len(parts)
        # Each child has a memo of its own, for else it would matter which is faster.
        jobs = [
            (branch.child(n, with_answers(part, parts, {}, trace), share), dict(memo))
            for n, part in parts.items()
        ]
        at_once = trace.fan_out(lambda job: self._solve(trace, *job), jobs, calls_each=0)
        for _, own in jobs:
            for key, answer in own.items():
                memo.setdefault(key, answer)
        return at_once

    def _combine(
        self,
        trace: Trace,
        branch: Branch,
        solved: list[Solved],
        instruction: str,
    ) -> Solved:
        notes = [
            f"{child.nodes[0].question} {child.answer if is_answer(child.answer) else 'unknown'}"
            for child in solved
        ]
        answer = trace.answer(
            self.combine,
            last=not branch.depth,
            notes=notes,
            question=branch.question,
            instruction=instruction.strip(),
        )
        nodes = [branch.node(answer), *(node for child in solved for node in child.nodes)]
        return Solved(answer, 2 + sum(child.calls for child in solved), nodes)

    # -- repl

    def _explore(self, trace: Trace) -> dspy.Prediction:
        variable = self._variable(trace)
        trace.step(
            "plan",
            observation=f"{len(variable)} passages in the variable `context`",
            notes={"system": self.knobs.variant},
        )
        with session(trace):
            try:
                reply = self.repl(context=variable, question=trace.question)
            except EndedError as ended:
                return trace.prediction(self.force(trace), ended.reason)
        answer = str(reply.answer or "").strip()
        trace.step("answer", thought=reply.final_reasoning, observation=answer)
        return trace.prediction(
            answer or self.force(trace), "answered" if answer else "no_progress"
        )

    def _variable(self, trace: Trace) -> list[str]:
        """The passages that the code sees: all, or the first search's where those are too many."""
        corpus = trace.retriever.corpus
        whole = self.knobs.variant == "repl_corpus"
        if whole and len(corpus) <= self.knobs.max_variable:
            return [str(passage) for passage in corpus]
        if not trace.searches:
            if whole:
                trace.count("corpus_cut")
            try:
                trace.search(trace.question, k=self.knobs.max_variable if whole else self.knobs.k)
            except BudgetSpentError:
                return []
        found = {passage.pid: passage for passage in trace.passages}
        hits = [found[pid] for pid, _ in trace.searches[0].hits]
        return [str(passage) if whole else f"{passage.pid} | {passage}" for passage in hits]
