"""LookaheadRAG: plan every look-up up front as a typed graph, run it by levels, answer once.

After the open-source project of that name, whose code and description differ. Variants:

- `bound`: its intended behaviour, which its engine never calls: what a look-up finds out is read
  off its passages and put into the queries that wait for it, level by level.
- `engine`: its engine as it runs, two calls whatever the number of hops. A query with a variable
  goes to the retriever as it stands, so a hop whose entity is found on the way cannot be followed.
- `rewrite`: two calls, and the planner writes queries that make sense by themselves.

Seven parts, each with its knob: several plans of which the typical one is followed (`samples`), the
pruner (`prune`), levels at once (`parallel`), the reranker (`rerank`), the fallback (`fallback`),
the assembled context (`assemble`), checked citations (`cite`). Without a graph at all it is
`multi_query`; with `parallel=false`, a plan that is executed step by step.

Departures: no reranker by default, since the project's cross-encoder needs torch
(`rerank=cross-encoder:cross-encoder/ms-marco-MiniLM-L6-v2`); a plan with a dangling dependency, or
a circle of dependencies that no query needs, is mended, not thrown away, except in `engine`; the
limit of the entropy trigger is one that a mean of bits can reach (published: 1.5); shares of the
context that are not used go to later look-ups; a comparison is made by the answering call, not
searched for, except in `engine`; synonyms of the fallback are a small table of relations.
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
from ragbench.programs.lookahead.choosing import Pruned, Weights, consensus, prune
from ragbench.programs.lookahead.context import Evidence, assemble, in_order
from ragbench.programs.lookahead.execution import Run, read_bindings
from ragbench.programs.lookahead.fallback import reformulations, triggers
from ragbench.programs.lookahead.graph import LookedUp, PlanGraph, single
from ragbench.programs.lookahead.knobs import LookaheadKnobs
from ragbench.programs.lookahead.reading import BadPlanError, read_plan
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.rerankers import make_reranker
from ragbench.signatures import (
    AnswerFromContext,
    AnswerFromPlan,
    BindVariables,
    DraftPlanGraph,
    DraftQueryGraph,
    SelectItems,
)

#: Temperature of all plans but the first.
SAMPLING = 0.7


@PROGRAMS.register("lookahead")
class LookaheadRAG(RAGProgram[LookaheadKnobs]):
    """Plan every look-up up front, run them level by level, and answer once with citations."""

    name = "lookahead"
    family = "workflow"
    calls = (
        "engine, rewrite: 2; bound: 2 + look-ups whose findings others use (<= max_nodes - 1); "
        "+ samples - 1; + 1 per look-up if rerank=lm"
    )
    autonomy = Autonomy("no", "partly", "no")
    variants = {  # noqa: RUF012
        "bound": {},
        "engine": {
            "variables": "keep",
            "confidence_threshold": 0.0,
            "context_tokens": 4096,
            "score": "sum",
            "w_confidence": 0.4,
            "w_hop": 0.3,
            "rerank_keep": 10,
            "rerank_min": 0.5,
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
            make_reranker(self.knobs.rerank)  # a wrong one is told at once
        self.answer = predict(AnswerFromPlan if self.knobs.cite else AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Plan, prune, look up, fall back if need be, answer."""
        knobs = self.knobs
        run = Run(
            trace,
            knobs,
            rerank=None if knobs.rerank == "none" else lambda *asked: self._reranked(trace, *asked),
            rerank_calls=int(knobs.rerank == "lm"),
            bind=None if knobs.variables != "bind" else lambda *asked: self._bound(trace, *asked),
        )
        graph = self._pruned(trace, self._plan(trace, run))
        run.follow(graph)
        if knobs.fallback:
            self._fall_back(trace, graph, run)
        evidence = self._context(trace, run)
        answer, citations = self._answer(trace, run, evidence)
        shown = {item.passage.pid: item.passage for item in evidence}
        others = [passage for passage in trace.passages if passage.pid not in shown]
        by_id = {item.node.id: item for item in run.looked_up}
        return trace.prediction(
            answer,
            "budget" if run.spent else "answered",
            passages=[*shown.values(), *others],
            plan=[by_id[node.id].to_dict() for node in graph],
            **({"citations": citations} if knobs.cite else {}),
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
        reply = trace.ask(
            self.draft,
            otherwise={"nodes": []},
            question=trace.question,
            max_nodes=self.knobs.max_nodes,
            config={"temperature": SAMPLING, "rollout_id": sample} if sample else {},
        )
        try:
            return read_plan(
                reply.nodes,
                max_nodes=self.knobs.max_nodes,
                mend=self.knobs.variables != "keep",
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
        """`graph` without look-ups of little confidence, and within the budget."""
        least = self.knobs.confidence_threshold
        sure = [n for n in graph if not n.stated or n.confidence >= least or n.id in graph.awaited]
        if len(sure) < len(graph):
            trace.count("unsure_nodes", len(graph) - len(sure))
        result = Pruned(PlanGraph(tuple(sure)), {})
        if self.knobs.prune:
            result = self.pruned(result.graph)
        dropped = [node.id for node in graph if node not in result.graph.nodes]
        if not dropped:
            return graph
        if len(result.graph) < len(sure):
            trace.count("pruned_nodes", len(sure) - len(result.graph))
        trace.step(
            "prune",
            input=f"cost {graph.cost}, budget {self.knobs.budget}",
            observation="left out: " + ", ".join(dropped),
            notes={"utilities": {i: round(u, 4) for i, u in result.utilities.items()}},
        )
        if len(result.graph):
            return result.graph
        trace.count("all_pruned")
        return single(trace.question)

    def _reranked(self, trace: Trace, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """The best of `passages`, best first: by scores, or as the LM names them."""
        keep = self.knobs.rerank_keep
        if self.knobs.rerank != "lm":
            reranker = make_reranker(self.knobs.rerank)
            scores = reranker.score(query, passages) if reranker else []
            scored = [p.scored(score) for p, score in zip(passages, scores, strict=True)]
            best = sorted(scored, key=lambda p: -p.score)  # stable
            return ([p for p in best if p.score >= self.knobs.rerank_min] or best)[:keep]
        shown = render(passages, max_tokens=self.knobs.context_tokens)
        reply = trace.ask(self.select, otherwise={"keep": []}, question=query, candidates=shown)
        named = [passages[n - 1] for n in dict.fromkeys(reply.keep) if 0 < n <= len(passages)]
        kept = (named or list(passages))[:keep]
        trace.step("judge", input=query, pids=tuple(p.pid for p in kept))
        return kept

    def _bound(
        self, trace: Trace, item: LookedUp, passages: Sequence[Passage], variables: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """The values of `variables` that `passages` state."""
        reply = trace.ask(
            self.bind,
            otherwise={"bindings": []},
            context=render(passages, max_tokens=self.knobs.context_tokens),
            question=trace.question,
            query=" / ".join(item.queries),
            variables=list(variables),
        )
        values = read_bindings(reply.bindings, variables)
        trace.step(
            "bind",
            input=item.queries[0],
            observation="\n".join(f"{name} = {', '.join(v)}" for name, v in values.items()),
            notes={"node": item.node.id, "values": values},
        )
        return values

    def _fall_back(self, trace: Trace, graph: PlanGraph, run: Run) -> None:
        fired = triggers(
            graph,
            run.looked_up,
            coverage=self.knobs.coverage_threshold,
            published=self.knobs.variables == "keep",
        )
        if not fired:
            return
        tried = [query for item in run.looked_up for query in item.queries]
        most = self.knobs.max_fallback_queries
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
        made = in_order(run.looked_up, max_tokens=knobs.context_tokens)
        if knobs.assemble:
            made = assemble(
                run.looked_up, max_tokens=knobs.context_tokens, duplicate_at=knobs.duplicate_at
            )
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
        """The answer and the numbers of the passages that it cites; unknown labels go."""
        context = [item.line for item in evidence]
        if not self.knobs.cite:
            asked = {"context": context, "question": trace.question}
            return trace.answer(self.answer, last=True, **asked), []
        labels = {item.passage.pid: item.label for item in evidence}
        reply = trace.ask(
            self.answer,
            otherwise={"answer": "", "citations": []},
            last=True,
            plan=[
                item.line([labels[p.pid] for p in item.passages if p.pid in labels])
                for item in run.looked_up
            ],
            context=context,
            question=trace.question,
        )
        numbers = {item.label: number for number, item in enumerate(evidence, start=1)}
        cited = list(dict.fromkeys(label.strip(" []") for label in reply.citations))
        known = [numbers[label] for label in cited if label in numbers]
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
