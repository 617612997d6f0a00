"""LookaheadRAG: plan every look-up up front as a typed graph, run it by levels, answer once.

After the open-source project of that name, whose code and description differ. Variants:

- `bound`: its intended behaviour, which its engine never calls: what a look-up finds out is read
  off its passages and put into the queries that wait for it, level by level.
- `engine`: its engine as it runs, two calls whatever the number of hops. A query with a variable
  goes to the retriever as it stands, so a hop whose entity is found on the way cannot be followed.
- `rewrite`: two calls, and the planner writes queries that make sense by themselves.

Parts, each with its module (`lookahead_*`) and its knob: several plans of which the typical one is
followed (`samples`), the pruner (`prune`), levels at once (`parallel`), the reranker (`rerank`),
the fallback (`fallback`), the assembled context (`assemble`), checked citations (`cite`). Without a
graph at all it is `multi_query`; with `parallel=false`, a plan that is executed step by step.

Departures: a plan with a dangling dependency is mended, not thrown away, except in `engine`; the
limit of the entropy trigger is one that a mean of bits can reach (published: 1.5); shares of the
context that are not used go to later look-ups; the fallback also fires where a look-up that others
wait for came to nothing. Citations are numbers, which a schema can hold; the labels of look-up and
rank stand beside them.
"""

from __future__ import annotations

from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.lookahead_context import Assembled, Cut, Evidence, assemble, in_order
from ragbench.programs.lookahead_fallback import Limits, reformulations, triggers
from ragbench.programs.lookahead_graph import BadPlanError, PlanGraph, read_plan, single
from ragbench.programs.lookahead_pruner import Score, Weights, prune
from ragbench.programs.lookahead_rerank import Scorer
from ragbench.programs.lookahead_run import Run
from ragbench.programs.lookahead_samples import consensus
from ragbench.programs.trace import BudgetSpentError, Trace, render
from ragbench.retrievers.base import Passage, Retriever
from ragbench.signatures.answering import AnswerFromContext, AnswerFromPlan
from ragbench.signatures.extracting import BindVariables
from ragbench.signatures.judging import SelectItems
from ragbench.signatures.planning import DraftPlanGraph, DraftQueryGraph


class LookaheadKnobs(ProgramKnobs):
    """Knobs of `lookahead`."""

    context_tokens: int = Field(
        4096, ge=100, le=1_000_000, description="tokens of passages shown in one call"
    )
    max_nodes: int = Field(5, ge=1, le=20, description="look-ups of a plan at the most")
    variables: Literal["bind", "keep", "none"] = Field(
        "bind", description="read off passages, left in the query, or not planned with"
    )
    max_values: int = Field(
        3, ge=1, le=20, description="values of a variable, queries of a look-up"
    )
    mend_plan: bool = Field(True, description="drop dangling dependencies instead of the plan")
    samples: int = Field(1, ge=1, le=20, description="plans drafted; agreement gives confidence")
    sample_temperature: float = Field(0.7, gt=0, le=2, description="of all plans but the first")
    prune: bool = Field(True, description="leave look-ups out where the budget is passed")
    budget: int = Field(10, ge=1, le=1000, description="cost of all look-ups at the most")
    score: Score = Field("sum", description="utility: weighted sum, or weighted geometric mean")
    w_confidence: float = Field(0.4, ge=0, le=10, description="weight of a look-up's confidence")
    w_novelty: float = Field(0.3, ge=0, le=10, description="weight of its novelty")
    w_hop: float = Field(0.3, ge=0, le=10, description="weight of its place in the chain")
    parallel: bool = Field(True, description="look-ups of a level at once, or one by one")
    rerank: str = Field("none", description="none, lm, maxsim, cross-encoder:NAME, http address")
    rerank_query: Literal["node", "question"] = Field(
        "node", description="what passages are reranked against"
    )
    rerank_keep: int = Field(3, ge=1, le=100, description="passages kept of a look-up")
    rerank_min: float = Field(0.0, description="lower scores are left out, unless all are lower")
    fallback: bool = Field(True, description="one round of further searches where a trigger fires")
    max_fallback_queries: int = Field(2, ge=1, le=10, description="searches of the fallback")
    min_passages: int = Field(2, ge=0, le=100, description="fewer passages in all trigger it")
    max_entropy: float = Field(
        0.95, ge=0, le=1, description="more mean entropy of the confidences (bits) triggers it"
    )
    min_confidence: float = Field(0.4, ge=0, le=1, description="less mean confidence triggers it")
    critical: bool = Field(True, description="an empty look-up that others wait for triggers it")
    assemble: bool = Field(True, description="context without near-duplicates, in shares")
    duplicate_at: float = Field(0.8, gt=0, le=1, description="share of words of near-duplicates")
    cut: Cut = Field("middle", description="where a passage that does not fit is cut")
    cite: bool = Field(True, description="show the plan and ask for citations")


@PROGRAMS.register("lookahead")
class LookaheadRAG(RAGProgram):
    """Plan every look-up up front, run them level by level, and answer once with citations."""

    name = "lookahead"
    family = "workflow"
    calls = (
        "engine, rewrite: 2; bound: 2 + look-ups whose findings others use (<= max_nodes - 1); "
        "+ samples - 1; + 1 per look-up if rerank=lm"
    )
    autonomy = Autonomy("no", "partly", "no")
    Knobs = LookaheadKnobs
    variants = {  # noqa: RUF012
        "bound": {},
        "engine": {
            "variables": "keep",
            "mend_plan": False,
            "rerank_query": "question",
            "rerank_keep": 10,
            "rerank_min": 0.5,
            "max_entropy": 1.0,
            "critical": False,
        },
        "rewrite": {"variables": "none"},
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        none = self.knobs.variables == "none"
        self.draft = predict(DraftQueryGraph if none else DraftPlanGraph)
        if self.knobs.variables == "bind":
            self.bind = predict(BindVariables)
        if self.knobs.rerank == "lm":
            self.select = predict(SelectItems)
        elif self.knobs.rerank != "none":
            self.scorer = Scorer(self.knobs.rerank)
        self.answer = predict(AnswerFromPlan if self.knobs.cite else AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Plan, prune, look up, fall back if need be, answer."""
        run = Run(
            trace,
            self.knobs,
            bind=getattr(self, "bind", None),
            select=getattr(self, "select", None),
            scorer=getattr(self, "scorer", None),
        )
        with run.stages.timed("plan"):
            graph = self._plan(trace, run)
        if self.knobs.prune:
            with run.stages.timed("prune"):
                graph = self._pruned(trace, graph)
        run.follow(graph)
        if self.knobs.fallback:
            with run.stages.timed("fallback"):
                self._fall_back(trace, graph, run)
        with run.stages.timed("context"):
            evidence = self._context(trace, run)
        with run.stages.timed("answer"):
            answer, citations = self._answer(trace, run, evidence)
        shown = [item.passage for item in evidence]
        return trace.prediction(
            answer,
            "budget" if run.spent else "answered",
            passages=[*shown, *_others(trace, shown)],
            plan=_told(graph, run),
            stages=run.stages.seconds,
            **({"citations": citations} if self.knobs.cite else {}),
        )

    def force(self, trace: Trace) -> str:
        """An answer from the passages seen so far, of which there may be none."""
        context = render(trace.passages, max_tokens=self.knobs.context_tokens)
        plan: dict[str, Any] = {"plan": []} if self.knobs.cite else {}
        return trace.answer(
            self.answer, last=True, context=context, question=trace.question, **plan
        )

    def _plan(self, trace: Trace, run: Run) -> PlanGraph:
        try:
            samples = list(range(self.knobs.samples))
            drafts = trace.fan_out(lambda sample: self._draft(trace, sample), samples)
        except BudgetSpentError:
            drafts, run.spent = [], True
        plans = [plan for plan in drafts if plan is not None]
        graph = consensus(plans) if plans else single(trace.question)
        trace.step(
            "plan",
            observation="\n".join(graph.lines()),
            notes={
                "entropy": round(graph.entropy, 4),
                "confidence": round(graph.confidence, 4),
                "plans": len(plans),
            },
        )
        return graph

    def _draft(self, trace: Trace, sample: int) -> PlanGraph | None:
        again = {"temperature": self.knobs.sample_temperature, "rollout_id": sample}
        reply = trace.ask(
            self.draft,
            otherwise={"nodes": []},
            question=trace.question,
            max_nodes=self.knobs.max_nodes,
            config=again if sample else {},
        )
        try:
            return read_plan(
                reply.nodes,
                max_nodes=self.knobs.max_nodes,
                mend=self.knobs.mend_plan,
                count=trace.count,
            )
        except BadPlanError:
            trace.count("bad_plan")
            return None

    def _pruned(self, trace: Trace, graph: PlanGraph) -> PlanGraph:
        knobs = self.knobs
        weights = Weights(knobs.w_confidence, knobs.w_novelty, knobs.w_hop)
        result = prune(graph, budget=knobs.budget, weights=weights, score=knobs.score)
        dropped = [node for node in graph if node not in result.graph.nodes]
        if not dropped:
            return graph
        trace.count("pruned_nodes", len(dropped))
        trace.step(
            "prune",
            input=f"cost {graph.cost}, budget {knobs.budget}",
            observation="left out: " + ", ".join(node.id for node in dropped),
            notes={"utilities": {i: round(u, 4) for i, u in result.utilities.items()}},
        )
        if len(result.graph):
            return result.graph
        trace.count("all_pruned")
        return single(trace.question)

    def _fall_back(self, trace: Trace, graph: PlanGraph, run: Run) -> None:
        knobs = self.knobs
        limits = Limits(knobs.min_passages, knobs.max_entropy, knobs.min_confidence, knobs.critical)
        fired = triggers(graph, run.found, limits)
        if not fired:
            return
        tried = [search.query for search in trace.searches]
        most = knobs.max_fallback_queries
        nodes = reformulations(trace.question, run.found, tried=tried, most=most)
        trace.count("fallback")
        trace.step(
            "fallback",
            observation=" / ".join(node.query for node in nodes),
            notes={"triggers": fired},
        )
        run.found += run.search(nodes)

    def _context(self, trace: Trace, run: Run) -> list[Evidence]:
        knobs = self.knobs
        if knobs.assemble:
            made: Assembled = assemble(
                run.found,
                max_tokens=knobs.context_tokens,
                duplicate_at=knobs.duplicate_at,
                cut=knobs.cut,
            )
        else:
            made = in_order(run.found, max_tokens=knobs.context_tokens)
        trace.step(
            "context",
            pids=tuple(item.passage.pid for item in made.evidence),
            notes={
                "labels": [item.label for item in made.evidence],
                "duplicates": made.duplicates,
            },
        )
        return made.evidence

    def _answer(self, trace: Trace, run: Run, evidence: list[Evidence]) -> tuple[str, list[int]]:
        """The answer and the numbers of the passages that it cites; unknown numbers go."""
        context = [item.line for item in evidence]
        if not self.knobs.cite:
            asked = {"context": context, "question": trace.question}
            return trace.answer(self.answer, last=True, **asked), []
        reply = trace.ask(
            self.answer,
            otherwise={"answer": "", "citations": []},
            last=True,
            plan=[item.line for item in run.found],
            context=context,
            question=trace.question,
        )
        cited = list(dict.fromkeys(reply.citations))
        known = [number for number in cited if 0 < number <= len(evidence)]
        if len(known) < len(cited):
            trace.count("unknown_citation", len(cited) - len(known))
        answer = str(reply.answer or "").strip()
        trace.step(
            "answer",
            observation=answer,
            pids=tuple(evidence[n - 1].passage.pid for n in known),
            notes={"citations": [evidence[n - 1].label for n in known]},
        )
        return answer, known


def _others(trace: Trace, shown: list[Passage]) -> list[Passage]:
    pids = {passage.pid for passage in shown}
    return [passage for passage in trace.passages if passage.pid not in pids]


def _told(graph: PlanGraph, run: Run) -> list[dict[str, Any]]:
    """The plan as it was followed, with what each look-up was asked and found out."""
    found = {item.node.id: item for item in run.found}
    return [
        {
            **node,
            "queries": list(found[node["id"]].queries),
            "values": {name: list(v) for name, v in found[node["id"]].values.items()},
        }
        for node in graph.to_dicts()
    ]
