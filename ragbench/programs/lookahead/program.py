"""LookaheadRAG: plan every look-up up front as a typed graph, run it by levels, answer once.

It follows the open-source project of that name, whose code and description differ. `bound` is its
intended behavior, which its engine never calls: values from the passages of a look-up fill the
queries that wait for it. `engine` is its engine unchanged, two calls for any number of hops: the
retriever receives queries with unfilled variables. In `rewrite` the planner writes self-contained
queries. Five parts can be switched: `samples`, `prune`, `parallel`, `rerank`, `fallback`. See
docs/programs.md for the differences from the project.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import dspy
from pydantic import Field

from ragbench import signatures
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    one_line,
    predict,
)
from ragbench.programs.core.replies import sampling
from ragbench.programs.lookahead import evidence as evidences, plan as plans
from ragbench.programs.lookahead.evidence import Evidence, QueryResult
from ragbench.programs.lookahead.plan import LookUp, PlanGraph, Source
from ragbench.retrievers import Passage
from ragbench.retrievers.rerank import make_reranker
from ragbench.text_normalization import question_key

#: Weight of a look-up's novelty in its utility.
_NOVELTY_WEIGHT = 0.3


class LookaheadKnobs(ProgramKnobs):
    """Knobs of `lookahead`; the defaults are those of the variant `bound`."""

    context_tokens: int = bounded(3000, 100, 1_000_000, "tokens of passages in context")
    max_nodes: int = bounded(5, 1, 20, "maximum number of look-ups of a plan")
    variables: Literal["bind", "keep", "none"] = Field(
        "bind", description="read from passages, kept in the query, or not planned"
    )
    confidence_threshold: float = bounded(
        0.3, 0, 1, "minimum confidence of look-ups that no other needs"
    )
    samples: int = bounded(1, 1, 20, "plans drafted (agreement gives confidence)")
    prune: bool = Field(True, description="drop look-ups beyond the budget")
    budget: int = bounded(10, 1, 1000, "maximum total cost of look-ups")
    score: plans.Score = Field("product", description="utility: weighted sum or geometric mean")
    w_confidence: float = bounded(0.5, 0, 10, "weight of a look-up's confidence")
    w_hop: float = bounded(0.2, 0, 10, "weight of its place in the chain")
    parallel: bool = Field(True, description="run look-ups of a level concurrently")
    rerank: str = Field("none", description="none, lm, maxsim, fastembed/NAME or an http address")
    rerank_keep: int = bounded(3, 1, 100, "passages kept of a look-up")
    rerank_min: float = Field(0.0, description="minimum score, unless all are lower")
    fallback: bool = Field(True, description="search one more round if a trigger fires")
    max_fallback_queries: int = bounded(2, 1, 10, "searches of the fallback")


@dataclass
class Run:
    """The look-ups of one question so far. `spent` is True after a limit removed something."""

    trace: Trace
    looked_up: list[QueryResult] = field(default_factory=list)
    values: dict[Source, tuple[str, ...]] = field(default_factory=dict)
    spent: bool = False


@PROGRAMS.register("lookahead")
class LookaheadRAG(RAGProgram[LookaheadKnobs]):
    """Plan every look-up up front, run them level by level, and answer once with citations."""

    variants = {  # noqa: RUF012
        "bound": {"on_missing": "say_so"},
        "engine": {
            "on_missing": "say_so",
            "variables": "keep",
            "confidence_threshold": 0.0,
            "context_tokens": 4096,
            "score": "sum",
            "w_confidence": 0.4,
            "w_hop": 0.3,
            "rerank_keep": 10,
            "rerank_min": 0.5,
        },
        "rewrite": {"variables": "none", "on_missing": "say_so"},
    }

    def make_predictors(self) -> None:
        if self.knobs.variables == "none":
            self.draft = predict(signatures.DraftQueryGraph)
        else:
            self.draft = predict(signatures.DraftPlanGraph)
        if self.knobs.variables == "bind":
            self.bind = predict(signatures.BindVariables)
        make_reranker(self.knobs.rerank)  # reject an unknown one before the first question
        self.answer = predict(signatures.AnswerFromPlan)

    def solve(self, trace: Trace) -> dspy.Prediction:
        run = Run(trace)
        graph = self._pruned(trace, self._planned(run))
        levels = graph.levels()
        if not self.knobs.parallel:
            levels = [[node] for level in levels for node in level]
        for level in levels:
            done = self._searched(run, level)
            done = [replace(item, passages=self._best(trace, item)) for item in done]
            if self.knobs.variables == "bind":
                done = self._bound(run, graph, done)
            run.looked_up += done
        if self.knobs.fallback:
            self._fall_back(run, graph)
        evidence = self._evidence(run)
        answer, citations = self._answer(run, evidence)
        read = [item.passage for item in evidence]
        by_id = {item.node.id: item for item in run.looked_up}
        return trace.prediction(
            answer,
            "budget" if run.spent else "answered",
            passages=core.each_once([*read, *trace.passages]),
            plan=[by_id[node.id].to_dict() for node in graph],
            citations=citations,
        )

    def force(self, trace: Trace) -> str:
        context = self.as_context(trace.passages)
        return trace.answer(self.answer, last=True, context=context, plan=[])

    def _planned(self, run: Run) -> PlanGraph:
        trace = run.trace
        try:
            drafts = trace.fan_out(lambda n: self._drafted(trace, n), range(self.knobs.samples))
        except core.BudgetSpentError:
            drafts = []
            run.spent = True
        sound = list(filter(None, drafts))
        if sound:
            graph = plans.consensus(sound)
        else:
            graph = plans.single(trace.question)
        notes = {
            "entropy": round(graph.entropy, 4),
            "confidence": round(graph.confidence, 4),
            "plans": len(sound),
        }
        trace.step("plan", observation="\n".join(graph.lines()), notes=notes)
        return graph

    def _drafted(self, trace: Trace, sample: int) -> PlanGraph | None:
        most = self.knobs.max_nodes
        mend = self.knobs.variables != "keep"
        reply = trace.ask(
            self.draft,
            config=sampling(sample),
            max_nodes=most,
            budget=self.knobs.budget,
            min_confidence=self.knobs.confidence_threshold,
        )
        graph = plans.read_plan(reply.nodes, max_nodes=most, mend=mend, count=trace.count)
        if graph is None:
            trace.count("bad_plan")
        return graph

    def within_budget(self, graph: PlanGraph) -> tuple[PlanGraph, dict[str, float]]:
        knobs = self.knobs
        weights = knobs.w_confidence, _NOVELTY_WEIGHT, knobs.w_hop
        return plans.prune(graph, budget=knobs.budget, weights=weights, score=knobs.score)

    def _pruned(self, trace: Trace, graph: PlanGraph) -> PlanGraph:
        """Return `graph` without look-ups of low confidence, and within the budget."""
        knobs = self.knobs
        least = knobs.confidence_threshold
        utilities = dict[str, float]()
        sure = []
        for n in graph:
            if not n.stated or n.confidence >= least or n.id in graph.awaited:
                sure.append(n)
        pruned = PlanGraph(tuple(sure))
        if knobs.prune:
            pruned, utilities = self.within_budget(pruned)
        dropped = [node.id for node in graph if node not in pruned.nodes]
        if not dropped:
            return graph
        cost = f"cost {graph.cost}, budget {knobs.budget}"
        observation = f"left out: {', '.join(dropped)}"
        rounded = {i: round(u, 4) for i, u in utilities.items()}
        notes = {"utilities": rounded} if rounded else {}
        trace.step("prune", input=cost, observation=observation, notes=notes)
        if not pruned.nodes:
            return plans.single(trace.question)
        return pruned

    def _searched(self, run: Run, nodes: Sequence[LookUp]) -> list[QueryResult]:
        """Search for each of `nodes`. Queries beyond the budget find no passages."""
        trace = run.trace
        keep = self.knobs.variables == "keep"
        instead = {item.node.id: " ".join(item.queries[:1]) for item in run.looked_up}

        def filled(node: LookUp) -> tuple[list[str], int]:
            as_it_stands = [node.query], len(node.references)
            if keep:
                return as_it_stands
            return plans.fill(node, run.values, instead)

        # A comparison follows from other results. The published engine searches for it too.
        computed = [node for node in nodes if node.computed and not keep]
        to_search = [(node, *filled(node)) for node in nodes if node not in computed]
        all_queries = list(dict.fromkeys(query for _, queries, _ in to_search for query in queries))
        allowed = all_queries[: trace.budget.retrievals_left]
        if len(allowed) < len(all_queries):
            trace.count("cut_by_budget", len(all_queries) - len(allowed))
            run.spent = True
        lists = trace.search_many(allowed, k=self.knobs.k) if allowed else []
        hits = dict(zip(allowed, lists, strict=True))
        done = []
        for node, queries, unresolved in to_search:
            rankings = []
            for query in queries:
                if query in hits:
                    rankings.append(hits[query])
            passages = rankings[0] if len(rankings) == 1 else core.fuse(rankings)
            done.append(QueryResult(node, tuple(queries), tuple(passages)))
            notes = {"node": node.id, "op": node.op, "unresolved": unresolved}
            trace.step("search", input=" / ".join(queries), of=passages, notes=notes)
        for node in computed:
            queries = filled(node)[0][:1] or [node.query]
            trace.step("compute", input=queries[0], notes={"node": node.id, "op": node.op})
            done.append(QueryResult(node, tuple(queries), searched=False))
        return done

    def _best(self, trace: Trace, item: QueryResult) -> tuple[Passage, ...]:
        reranker = make_reranker(self.knobs.rerank)
        if reranker is None or len(item.passages) < 2:
            return item.passages
        # The published engine compares with the question, `bound` with the query.
        if self.knobs.variables == "keep":
            query = trace.question
        else:
            query = item.queries[0]
        scores = reranker.score(query, item.passages)
        scored = [p.scored(score) for p, score in zip(item.passages, scores, strict=True)]
        best = sorted(scored, key=lambda p: -p.score)  # stable
        relevant = [p for p in best if p.score >= self.knobs.rerank_min] or best
        return tuple(relevant[: self.knobs.rerank_keep])

    def _bound(self, run: Run, graph: PlanGraph, done: list[QueryResult]) -> list[QueryResult]:
        """Return `done` with the values of the variables that later look-ups use."""
        jobs = []
        for item in done:
            passages: Passages = item.passages
            if not item.searched:
                before = []
                for i in run.looked_up:
                    if i.node.id in item.node.depends_on:
                        before.append(i.passages)
                passages = core.fuse(before)
            if (variables := graph.wanted(item.node)) and passages:
                jobs.append((item, passages, variables))
        try:
            replies = run.trace.fan_out(lambda job: self._values(run.trace, *job), jobs)
        except core.BudgetSpentError:
            replies = []
        run.spent |= len(replies) < len(jobs)
        read = {job[0].node.id: reply for job, reply in zip(jobs, replies, strict=False)}
        bound = []
        for item in done:
            values = read.get(item.node.id, {})
            run.values.update({Source(item.node.id, name): got for name, got in values.items()})
            missing = tuple(name for name in graph.wanted(item.node) if name not in values)
            bound.append(replace(item, values=values, unbound=missing))
        return bound

    def _values(
        self, trace: Trace, item: QueryResult, passages: Passages, variables: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        reply = trace.ask(
            self.bind,
            query=" / ".join(item.queries),
            variables=list(variables),
            context=self.as_context(passages),
        )
        values = read_bindings(reply.bindings, variables)
        bindings = "\n".join(f"{name} = {', '.join(v)}" for name, v in values.items())
        notes = {"node": item.node.id, "values": values}
        trace.step("bind", input=item.queries[0], observation=bindings, notes=notes)
        return values

    def _fall_back(self, run: Run, graph: PlanGraph) -> None:
        trace = run.trace
        published = self.knobs.variables == "keep"
        fired = evidences.triggers(graph, run.looked_up, published=published)
        if not fired:
            return
        most = self.knobs.max_fallback_queries
        nodes = evidences.reformulations(trace.question, run.looked_up, most=most)
        trace.count("fallback")
        queries = " / ".join(node.query for node in nodes)
        trace.step("fallback", observation=queries, notes={"triggers": fired})
        run.looked_up += self._searched(run, nodes)

    def _evidence(self, run: Run) -> list[Evidence]:
        most = self.knobs.context_tokens
        evidence, duplicates = evidences.assemble(run.looked_up, max_tokens=most)
        notes = {"labels": [item.label for item in evidence], "duplicates": duplicates}
        run.trace.step("context", of=[item.passage for item in evidence], notes=notes)
        return evidence

    def _answer(self, run: Run, evidence: list[Evidence]) -> tuple[str, list[int]]:
        """Return the answer and the numbers of the cited passages, without unknown ones."""
        trace = run.trace
        context = [item.line for item in evidence]
        labels = {item.passage.pid: item.label for item in evidence}
        plan = []
        for item in run.looked_up:
            plan.append(item.line([labels[p.pid] for p in item.passages if p.pid in labels]))
        reply = trace.ask(self.answer, last=True, plan=plan, context=context)
        numbers = {item.label: number for number, item in enumerate(evidence, start=1)}
        cited = list(dict.fromkeys(label.strip(" []") for label in reply.citations))
        numbers_cited = []
        for label in cited:
            if label in numbers:
                numbers_cited.append(numbers[label])
        if len(numbers_cited) < len(cited):
            trace.count("unknown_citation", len(cited) - len(numbers_cited))
        answer = reply.answer
        proofs = [evidence[n - 1] for n in numbers_cited]
        notes = {"citations": [proof.label for proof in proofs]}
        trace.step("answer", observation=answer, of=[p.passage for p in proofs], notes=notes)
        return answer, numbers_cited


def read_bindings(
    rows: Sequence[signatures.Binding], variables: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Collect the values of variables from a reply.

    Args:
        rows: Rows of the reply. Rows with other names are ignored, unless a single variable is
            wanted and no row has its name.
        variables: Wanted variables.

    Returns:
        At most `MAX_VALUES` values per variable, without refusals and blanks.
    """
    values_of: dict[str, dict[str, str]] = {}
    named = [(plans.variable_name(row.variable), row.value) for row in rows]
    if len(variables) == 1 and variables[0] not in dict(named):
        named = [(variables[0], value) for _, value in named]
    for name, text in named:
        value = one_line(text).rstrip(".")
        if name in variables and is_answer(value):
            values_of.setdefault(name, {}).setdefault(question_key(value), value)
    return {name: tuple(values.values())[: plans.MAX_VALUES] for name, values in values_of.items()}
