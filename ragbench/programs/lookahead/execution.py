"""One question's way through its plan: fill queries, search, rerank, bind, level by level."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import dspy

from ragbench.context import current
from ragbench.programs.core import BudgetSpentError, Trace, fuse, render
from ragbench.programs.lookahead.binding import Filled, fill, read_bindings
from ragbench.programs.lookahead.graph import LookedUp, Node, PlanGraph
from ragbench.programs.lookahead.rerank import Scorer, chosen
from ragbench.record import CriticalPath
from ragbench.retrievers import Passage

Item = TypeVar("Item")
Result = TypeVar("Result")


class Stages:
    """Seconds spent in each stage; what the cache saved is added back, as in a record."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to the stage `name`."""
        start = _clock()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + _clock() - start, 6)


def _clock() -> float:
    path = current().get(CriticalPath)
    return time.perf_counter() + (path.cached_s if path is not None else 0.0)


class Run:
    """The look-ups of one question, done level by level; `spent` once a limit cut something."""

    def __init__(
        self,
        trace: Trace,
        knobs: Any,
        *,
        bind: dspy.Module | None = None,
        select: dspy.Module | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        self.trace, self.knobs, self.stages = trace, knobs, Stages()
        self.looked_up: list[LookedUp] = []
        self.spent = False
        self._bind, self._select, self._scorer = bind, select, scorer
        self._values: dict[tuple[str, str], tuple[str, ...]] = {}
        self._ignored: frozenset[str] = frozenset()

    def follow(self, graph: PlanGraph) -> None:
        """Do every look-up of `graph`, those of a level at once."""
        self._ignored = graph.conclusions if not self.knobs.search_all else frozenset()
        levels = graph.levels()
        if not self.knobs.parallel:
            levels = [[node] for level in levels for node in level]
        for level in levels:
            with self.stages.timed("retrieve"):
                done = self.search(level)
            if self._select is not None or self._scorer is not None:
                with self.stages.timed("rerank"):
                    done = self._reranked(done)
            if self._bind is not None and any(self._wanted(graph, node) for node in level):
                with self.stages.timed("bind"):
                    done = self._bound(done, graph)
            self.looked_up += done

    def search(self, nodes: Sequence[Node]) -> list[LookedUp]:
        """The passages of each of `nodes`; none for queries that the budget has no search for."""
        computed = [node for node in nodes if node.computed and not self.knobs.search_all]
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
            rankings = [hits[query] for query in item.queries if query in hits]
            passages = rankings[0] if len(rankings) == 1 else fuse(rankings, fusion="rrf")
            done.append(LookedUp(node, tuple(item.queries), tuple(passages)))
            self.trace.step(
                "search",
                input=" / ".join(item.queries),
                pids=tuple(p.pid for p in passages),
                notes={"node": node.id, "op": node.op, "unresolved": item.unresolved},
            )
        return done + [self._computed(node) for node in computed]

    def _computed(self, node: Node) -> LookedUp:
        """A look-up that is worked out of what others found: it searches nothing."""
        queries = self._filled(node, count=False).queries[:1] or [node.query]
        self.trace.step("compute", input=queries[0], notes={"node": node.id, "op": node.op})
        return LookedUp(node, tuple(queries), searched=False)

    def _wanted(self, graph: PlanGraph, node: Node) -> tuple[str, ...]:
        return graph.wanted(node, ignoring=self._ignored)

    def _filled(self, node: Node, *, count: bool = True) -> Filled:
        if self.knobs.variables == "keep":
            filled = Filled([node.query], len(node.references))
        else:
            instead = {item.node.id: " ".join(item.queries[:1]) for item in self.looked_up}
            filled = fill(node, self._values, instead, most=self.knobs.max_values)
        if filled.unresolved and count:
            self.trace.count("unresolved_variable", filled.unresolved)
        return filled

    def _reranked(self, done: list[LookedUp]) -> list[LookedUp]:
        def rerank(item: LookedUp) -> list[Passage]:
            question = self.knobs.rerank_query == "question" or not item.queries
            query = self.trace.question if question else item.queries[0]
            keep = self.knobs.rerank_keep
            if self._scorer is not None:
                return self._scorer.order(
                    query, item.passages, keep=keep, at_least=self.knobs.rerank_min
                )
            return self._selected(query, item, keep)

        some = [item for item in done if len(item.passages) > 1]
        calls = 1 if self._select is not None else 0
        orders = self._at_once(rerank, some, calls_each=calls)
        better = {item.node.id: tuple(order) for item, order in zip(some, orders, strict=False)}
        return [replace(i, passages=better.get(i.node.id, i.passages)) for i in done]

    def _selected(self, query: str, item: LookedUp, keep: int) -> list[Passage]:
        assert self._select is not None
        shown = render(item.passages, max_tokens=self.knobs.context_tokens)
        reply = self.trace.ask(
            self._select, otherwise={"keep": []}, question=query, candidates=shown
        )
        kept = chosen(item.passages, reply.keep, keep=keep)
        pids = tuple(p.pid for p in kept)
        self.trace.step("judge", input=query, pids=pids, notes={"node": item.node.id})
        return kept

    def _bound(self, done: list[LookedUp], graph: PlanGraph) -> list[LookedUp]:
        producers = [i for i in done if self._wanted(graph, i.node) and self._evidence(i)]
        replies = self._at_once(lambda i: self._read(i, self._wanted(graph, i.node)), producers)
        read = {i.node.id: reply for i, reply in zip(producers, replies, strict=False)}
        bound = []
        for item in done:
            values = read.get(item.node.id, {})
            wanted = self._wanted(graph, item.node)
            for name, known in values.items():
                self._values[item.node.id, name] = known
            missing = tuple(name for name in wanted if name not in values)
            bound.append(replace(item, values=values, unbound=missing))
        return bound

    def _read(self, item: LookedUp, variables: Sequence[str]) -> dict[str, tuple[str, ...]]:
        assert self._bind is not None
        reply = self.trace.ask(
            self._bind,
            otherwise={"bindings": []},
            context=render(self._evidence(item), max_tokens=self.knobs.context_tokens),
            question=self.trace.question,
            query=" / ".join(item.queries),
            variables=list(variables),
        )
        values = read_bindings(reply.bindings, variables, most=self.knobs.max_values)
        self.trace.step(
            "bind",
            input=item.queries[0],
            observation="\n".join(f"{name} = {', '.join(v)}" for name, v in values.items()),
            notes={"node": item.node.id, "values": values},
        )
        return values

    def _evidence(self, item: LookedUp) -> Sequence[Passage]:
        """What `item` is read off: its passages, or those of the look-ups that it is made of."""
        if item.searched:
            return item.passages
        before = [i.passages for i in self.looked_up if i.node.id in item.node.depends_on]
        return fuse(before, fusion="rrf")

    def _at_once(
        self, function: Callable[[Item], Result], items: Sequence[Item], *, calls_each: int = 1
    ) -> list[Result]:
        """The results of as many of `items` as the budget allows, which may be none."""
        try:
            results = self.trace.fan_out(function, items, calls_each=calls_each)
        except BudgetSpentError:
            results = []
        self.spent = self.spent or len(results) < len(items)
        return results
