"""LookaheadRAG: plan every look-up up front as a typed graph, run it by levels, answer once.

After the open-source project of that name, whose code and description differ. Variants:

- `bound`: its intended behaviour, which its engine never calls: what a look-up finds out is read
  off its passages and put into the queries that wait for it, level by level.
- `engine`: its engine as it runs, two calls whatever the number of hops. A query with a variable
  goes to the retriever as it stands, so a hop whose entity is found on the way cannot be followed.
- `rewrite`: two calls, and the planner writes queries that make sense by themselves.

Parts, each with its module and its knob: several plans of which the typical one is
followed (`samples`), the pruner (`prune`), levels at once (`parallel`), the reranker (`rerank`),
the fallback (`fallback`), the assembled context (`assemble`), checked citations (`cite`). Without a
graph at all it is `multi_query`; with `parallel=false`, a plan that is executed step by step.

Departures: a plan with a dangling dependency, or a circle of dependencies that no query needs, is
mended, not thrown away, except in `engine`; the limit of the entropy trigger is one that a mean of
bits can reach (published: 1.5); shares of the context that are not used go to later look-ups; the
fallback also fires where a look-up that others wait for came to nothing; a comparison is made by
the answering call, not searched for, except in `engine`. Citations are numbers, which a schema can
hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    BudgetSpentError,
    RAGProgram,
    Trace,
    predict,
    render,
)
from ragbench.programs.lookahead.context import Assembled, Evidence, assemble, in_order
from ragbench.programs.lookahead.execution import Run
from ragbench.programs.lookahead.fallback import Limits, reformulations, triggers
from ragbench.programs.lookahead.graph import LookedUp, PlanGraph, single
from ragbench.programs.lookahead.knobs import LookaheadKnobs
from ragbench.programs.lookahead.pruner import Pruned, Weights, prune
from ragbench.programs.lookahead.reading import BadPlanError, read_plan
from ragbench.programs.lookahead.rerank import Scorer
from ragbench.programs.lookahead.samples import consensus
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import (
    AnswerFromContext,
    AnswerFromPlan,
    BindVariables,
    DraftPlanGraph,
    DraftQueryGraph,
    SelectItems,
)


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
            "search_all": True,
            "context_tokens": 4096,
            "score": "sum",
            "w_confidence": 0.4,
            "w_hop": 0.3,
            "min_coverage": 0.0,
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

    def pruned(self, graph: PlanGraph) -> Pruned:
        """What the budget leaves of `graph`."""
        knobs = self.knobs
        weights = Weights(knobs.w_confidence, knobs.w_novelty, knobs.w_hop)
        return prune(graph, budget=knobs.budget, weights=weights, score=knobs.score)

    def _pruned(self, trace: Trace, graph: PlanGraph) -> PlanGraph:
        result = self.pruned(graph)
        dropped = [node for node in graph if node not in result.graph.nodes]
        if not dropped:
            return graph
        trace.count("pruned_nodes", len(dropped))
        trace.step(
            "prune",
            input=f"cost {graph.cost}, budget {self.knobs.budget}",
            observation="left out: " + ", ".join(node.id for node in dropped),
            notes={"utilities": {i: round(u, 4) for i, u in result.utilities.items()}},
        )
        if len(result.graph):
            return result.graph
        trace.count("all_pruned")
        return single(trace.question)

    def _fall_back(self, trace: Trace, graph: PlanGraph, run: Run) -> None:
        knobs = self.knobs
        limits = Limits(
            passages=knobs.min_passages,
            coverage=knobs.min_coverage,
            entropy=knobs.max_entropy,
            confidence=knobs.min_confidence,
            critical=knobs.critical,
        )
        fired = triggers(graph, run.looked_up, limits)
        if not fired:
            return
        tried = [search.query for search in trace.searches]
        most = knobs.max_fallback_queries
        nodes = reformulations(trace.question, run.looked_up, tried=tried, most=most)
        trace.count("fallback")
        trace.step(
            "fallback",
            observation=" / ".join(node.query for node in nodes),
            notes={"triggers": fired},
        )
        run.looked_up += run.search(nodes)

    def _context(self, trace: Trace, run: Run) -> list[Evidence]:
        knobs = self.knobs
        if knobs.assemble:
            made: Assembled = assemble(
                run.looked_up,
                max_tokens=knobs.context_tokens,
                duplicate_at=knobs.duplicate_at,
                cut=knobs.cut,
            )
        else:
            made = in_order(run.looked_up, max_tokens=knobs.context_tokens)
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
            plan=[item.line(_numbers(item, evidence)) for item in run.looked_up],
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


def _numbers(item: LookedUp, evidence: Sequence[Evidence]) -> list[int]:
    """The numbers of the passages shown that this look-up found, the best first."""
    places = {shown.passage.pid: number for number, shown in enumerate(evidence, start=1)}
    return [places[passage.pid] for passage in item.passages if passage.pid in places]


def _others(trace: Trace, shown: list[Passage]) -> list[Passage]:
    pids = {passage.pid for passage in shown}
    return [passage for passage in trace.passages if passage.pid not in pids]


def _told(graph: PlanGraph, run: Run) -> list[dict[str, Any]]:
    """The plan as it was followed, with what each look-up was asked and found out."""
    by_id = {item.node.id: item for item in run.looked_up}
    return [
        {
            **node,
            "queries": list(by_id[node["id"]].queries),
            "values": {name: list(v) for name, v in by_id[node["id"]].values.items()},
        }
        for node in graph.to_dicts()
    ]
