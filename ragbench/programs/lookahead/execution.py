"""One question's way through its plan: fill queries, search, rerank, bind, level by level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import NamedTuple, TypeVar

from ragbench.data import question_key
from ragbench.programs.core import BudgetSpentError, Trace, fuse, is_answer
from ragbench.programs.lookahead.graph import LookedUp, Node, PlanGraph
from ragbench.programs.lookahead.knobs import LookaheadKnobs
from ragbench.programs.lookahead.reading import variable_name
from ragbench.retrievers import Passage
from ragbench.signatures import Binding

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Values of a variable at the most, and queries of a look-up that uses several.
MAX_VALUES = 3
#: (look-up, variable) -> its values, best first.
Values = Mapping[tuple[str, str], Sequence[str]]
#: The best passages for a query.
Rerank = Callable[[str, Sequence[Passage]], list[Passage]]
#: The values of variables that a look-up's passages state.
Bind = Callable[[LookedUp, Sequence[Passage], Sequence[str]], dict[str, tuple[str, ...]]]


class Run:
    """The look-ups of one question, done level by level; `spent` once a limit cut something.

    `rerank` and `bind` are None where the plan is followed without; each call of `rerank` takes
    `calls` calls of an LM.
    """

    def __init__(
        self,
        trace: Trace,
        knobs: LookaheadKnobs,
        *,
        rerank: Rerank | None = None,
        rerank_calls: int = 0,
        bind: Bind | None = None,
    ) -> None:
        self.trace, self.knobs = trace, knobs
        self.looked_up: list[LookedUp] = []
        self.spent = False
        self._rerank, self._rerank_calls, self._bind = rerank, rerank_calls, bind
        self._values: dict[tuple[str, str], tuple[str, ...]] = {}
        # As published, comparisons are searched for too.
        self._computes = knobs.variables != "keep"

    def follow(self, graph: PlanGraph) -> None:
        """Do every look-up of `graph`, those of a level at once."""
        levels = graph.levels()
        if not self.knobs.parallel:
            levels = [[node] for level in levels for node in level]
        for level in levels:
            done = self.search(level)
            if self._rerank is not None:
                done = self._reranked(done, self._rerank)
            if self._bind is not None:
                done = self._bound(done, graph, self._bind)
            self.looked_up += done

    def search(self, nodes: Sequence[Node]) -> list[LookedUp]:
        """The passages of each of `nodes`; none for queries that the budget has no search for."""
        computed = [node for node in nodes if node.computed and self._computes]
        nodes = [node for node in nodes if node not in computed]
        filled = [self._filled(node) for node in nodes]
        wanted = list(dict.fromkeys(query for item in filled for query in item.queries))
        allowed = wanted[: self.trace.budget.max_retrievals - self.trace.budget.retrievals]
        if len(allowed) < len(wanted):
            self.trace.count("cut_by_budget", len(wanted) - len(allowed))
            self.spent = True
        lists = self.trace.search_many(allowed, k=self.knobs.k) if allowed else []
        hits = dict(zip(allowed, lists, strict=True))
        done = []
        for node, item in zip(nodes, filled, strict=True):
            if item.unresolved:
                self.trace.count("unresolved_variable", item.unresolved)
            rankings = [hits[query] for query in item.queries if query in hits]
            passages = rankings[0] if len(rankings) == 1 else fuse(rankings, fusion="rrf")
            done.append(LookedUp(node, tuple(item.queries), tuple(passages)))
            self.trace.step(
                "search",
                input=" / ".join(item.queries),
                pids=tuple(p.pid for p in passages),
                notes={"node": node.id, "op": node.op, "unresolved": item.unresolved},
            )
        for node in computed:  # worked out of what others found: it searches nothing
            queries = self._filled(node).queries[:1] or [node.query]
            self.trace.step("compute", input=queries[0], notes={"node": node.id, "op": node.op})
            done.append(LookedUp(node, tuple(queries), searched=False))
        return done

    def _filled(self, node: Node) -> Filled:
        if self.knobs.variables == "keep":
            return Filled([node.query], len(node.references))
        instead = {item.node.id: " ".join(item.queries[:1]) for item in self.looked_up}
        return fill(node, self._values, instead)

    def _reranked(self, done: list[LookedUp], rerank: Rerank) -> list[LookedUp]:
        def best(item: LookedUp) -> tuple[Passage, ...]:
            # As published, against the question; here against what the look-up asks.
            query = "" if self.knobs.variables == "keep" else " ".join(item.queries[:1])
            return tuple(rerank(query or self.trace.question, item.passages))

        some = [item for item in done if len(item.passages) > 1]
        orders = self._at_once(best, some, calls_each=self._rerank_calls)
        better = {item.node.id: order for item, order in zip(some, orders, strict=False)}
        return [replace(i, passages=better.get(i.node.id, i.passages)) for i in done]

    def _bound(self, done: list[LookedUp], graph: PlanGraph, bind: Bind) -> list[LookedUp]:
        # What only a comparison uses that the answering call makes is left to that call.
        ignored = graph.conclusions if self._computes else frozenset()
        wanted = {item.node.id: graph.wanted(item.node, ignoring=ignored) for item in done}
        producers = [i for i in done if wanted[i.node.id] and self._evidence(i)]
        replies = self._at_once(
            lambda i: bind(i, self._evidence(i), wanted[i.node.id]), producers, calls_each=1
        )
        read = {i.node.id: reply for i, reply in zip(producers, replies, strict=False)}
        bound = []
        for item in done:
            values = read.get(item.node.id, {})
            self._values.update({(item.node.id, name): known for name, known in values.items()})
            missing = tuple(name for name in wanted[item.node.id] if name not in values)
            bound.append(replace(item, values=values, unbound=missing))
        return bound

    def _evidence(self, item: LookedUp) -> Sequence[Passage]:
        """What `item` is read off: its passages, or those of the look-ups that it is made of."""
        if item.searched:
            return item.passages
        before = [i.passages for i in self.looked_up if i.node.id in item.node.depends_on]
        return fuse(before, fusion="rrf")

    def _at_once(
        self, function: Callable[[Item], Result], items: Sequence[Item], *, calls_each: int
    ) -> list[Result]:
        """The results of as many of `items` as the budget allows, which may be none."""
        try:
            results = self.trace.fan_out(function, items, calls_each=calls_each)
        except BudgetSpentError:
            results = []
        self.spent = self.spent or len(results) < len(items)
        return results


class Filled(NamedTuple):
    """The queries of one look-up, and how many of its variables had no value."""

    queries: list[str]
    unresolved: int


def fill(node: Node, values: Values, instead: Mapping[str, str]) -> Filled:
    """The query of `node` with every variable replaced; one query per combination of values.

    A variable without a value gives way to `instead` of its look-up (the query that should have
    found it), or to nothing. At most `MAX_VALUES` queries come back, and none is blank.
    """
    known = [values.get((r.node, r.variable), ()) for r in node.references]
    choices = [
        found or [instead.get(reference.node, "")]
        for reference, found in zip(node.references, known, strict=True)
    ]
    queries = []
    for chosen in islice(product(*choices), MAX_VALUES):
        text = node.query
        for reference, value in reversed(list(zip(node.references, chosen, strict=True))):
            text = text[: reference.start] + value + text[reference.end :]
        queries.append(" ".join(text.split()))
    fresh = [query for query in dict.fromkeys(queries) if question_key(query)]
    return Filled(fresh, sum(not found for found in known))


def read_bindings(rows: Iterable[Binding], variables: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Variable -> its values in `rows`, at most `MAX_VALUES`; what commits to nothing is left out.

    A row of another name is left out too, unless one variable was asked for and no row names it.
    """
    values_of: dict[str, dict[str, str]] = {}
    named = [(variable_name(row.variable), row.value) for row in rows]
    if len(variables) == 1 and variables[0] not in dict(named):
        named = [(variables[0], value) for _, value in named]
    for name, text in named:
        value = " ".join(text.split()).rstrip(".")
        if name in variables and is_answer(value):
            values_of.setdefault(name, {}).setdefault(question_key(value), value)
    return {name: tuple(values.values())[:MAX_VALUES] for name, values in values_of.items()}
