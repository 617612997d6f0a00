"""RQ-RAG: a tree of refined queries, an answer at every node, and the best of them.

Chan et al. 2024 (arXiv:2404.00610). From each node every action (rewrite, decompose, disambiguate)
samples one query at temperature 1. The results of its search extend the passages of the path, and
every node answers from all of them. The program keeps the most confident answer, or the one with
the largest total confidence. The root has no passages.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import dspy
from pydantic import Field

from ragbench.metrics import normalise_answer
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    one_line,
    predict,
)
from ragbench.programs.core.confidence import probability, token_probabilities
from ragbench.retrievers import Passage
from ragbench.signatures import QUERY_ACTIONS, AnswerWithConfidence, QueryAction, RefineQuery


class RQRAGKnobs(ProgramKnobs):
    """Knobs of `rq_rag`."""

    k: int = bounded(3, 1, 100, "passages per query")
    depth: int = bounded(1, 0, 5, "queries on a path")
    actions: tuple[QueryAction, ...] = Field(
        ("rewrite", "decompose", "disambiguate"), min_length=1, description="kinds of queries"
    )
    beam_width: int = bounded(0, 0, 100, "nodes expanded on a level; 0: all")
    select: Literal["confidence", "vote"] = Field(
        "confidence", description="the surest answer, or the largest sum over equal answers"
    )
    temperature: float = bounded(1.0, 0, 2, "of the queries")
    confidence_source: Literal["verbal", "logprob"] = Field(
        "verbal", description="as stated, or the mean probability of the answer's tokens"
    )


@dataclass(frozen=True)
class Node:
    """The queries of a path, their passages, and the answer from them."""

    queries: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    answer: str = ""
    confidence: float = 0.0


@PROGRAMS.register("rq_rag")
class RQRAG(RAGProgram[RQRAGKnobs]):
    """Refine the question in several ways, answer from what each finds, and keep the best."""

    variants = {"official": {}}  # noqa: RUF012

    def make_predictors(self) -> None:
        if self.knobs.depth:
            self.refine = predict(RefineQuery, temperature=self.knobs.temperature)
        if self.knobs.confidence_source == "logprob":
            bare = AnswerWithConfidence.delete("confidence")
            self.answer = predict(bare, like=AnswerWithConfidence, logprobs=True)
        else:
            self.answer = predict(AnswerWithConfidence)

    def solve(self, trace: Trace) -> dspy.Prediction:
        nodes: list[Node] = []
        reason: core.StopReason = "answered"
        try:
            level = [Node()]
            if not self.knobs.depth:
                passages = trace.search(trace.question, k=self.knobs.k)
                level = [self._answered(trace, Node(passages=tuple(passages)))]
                nodes += level
            for _ in range(self.knobs.depth):
                jobs = [(node, action) for node in level for action in self.knobs.actions]
                level = self._grown(trace, jobs)
                nodes += level
                level = sorted(level, key=lambda node: -node.confidence)  # stable
                level = level[: self.knobs.beam_width or None]
        except core.BudgetSpentError:
            reason = "budget"
        best = self._best(nodes)
        if best is None:
            answer = self.answer_from(trace, self.answer, trace.passages)
            return trace.prediction(answer, "budget" if reason == "budget" else "no_progress")
        passages = core.each_once([*best.passages, *trace.passages])
        return trace.prediction(best.answer, reason, passages=passages)

    def _grown(self, trace: Trace, jobs: Sequence[tuple[Node, QueryAction]]) -> list[Node]:
        affordable = trace.budget.calls_left // 2
        if affordable < len(jobs):
            trace.count("cut_by_budget", len(jobs) - affordable)
        jobs = jobs[:affordable]
        queries = trace.fan_out(lambda job: self._refined(trace, *job), jobs)
        if again := 1 + len(queries) - len(core.distinct([trace.question, *queries])):
            trace.count("repeated_query", again)
        # Searched together, for what two of them ask alike would else depend on which is first.
        rankings = trace.search_many(queries, k=self.knobs.k)
        grown = []
        for (node, action), query, hits in zip(jobs, queries, rankings, strict=True):
            trace.step("search", input=query, of=hits, notes={"action": action})
            read = core.each_once([*node.passages, *hits])
            grown.append(Node((*node.queries, query), tuple(read)))
        return trace.fan_out(lambda node: self._answered(trace, node), grown)

    def _refined(self, trace: Trace, node: Node, action: QueryAction) -> str:
        context = self.as_context(node.passages)
        kind = QUERY_ACTIONS[action]
        reply = trace.ask(self.refine, context=context, kind=kind)
        return one_line(reply.query) or trace.question

    def _answered(self, trace: Trace, node: Node) -> Node:
        question = trace.question
        context = self.as_context(node.passages)
        reply = trace.ask(self.answer, context=context, question=question)
        answer = reply.answer
        if is_answer(answer):
            confidence = self._confidence(reply)
        else:
            confidence = 0.0
        notes = {"confidence": round(confidence, 4), "queries": list(node.queries)}
        read = node.passages[: len(context)]
        trace.step("answer", input=question, observation=answer, of=read, notes=notes)
        return replace(node, answer=answer, confidence=confidence)

    def _confidence(self, reply: dspy.Prediction) -> float:
        if self.knobs.confidence_source == "verbal":
            # Round, because differences such as 0.99999 of small models are noise.
            return round(probability(reply.confidence), 2)
        likely = [p for _, p in token_probabilities(reply, "answer")]
        if likely:
            return fmean(likely)
        return 0.0

    def _best(self, nodes: Sequence[Node]) -> Node | None:
        """Return the node whose answer is kept. If nodes tie: with passages, then the deepest."""
        good = [node for node in nodes if is_answer(node.answer)]
        votes: defaultdict[str, float] = defaultdict(float)
        if self.knobs.select == "vote":
            for node in good:
                votes[normalise_answer(node.answer)] += node.confidence

        def worth(node: Node) -> tuple[float, float, bool, int]:
            vote = votes[normalise_answer(node.answer)]
            return vote, node.confidence, bool(node.passages), len(node.queries)

        return max(good, key=worth, default=None)
