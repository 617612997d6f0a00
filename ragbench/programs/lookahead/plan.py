"""The plan of `lookahead`: a graph of look-ups, read from a reply, pruned, and filled.

A query refers to the result of another look-up as {variable}, {id} or {id.variable}. If no look-up
produces the variable, it means the result of the only dependency.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice, product
from statistics import fmean
from typing import Literal, NamedTuple

from ragbench.programs.core import distinct, jaccard, one_line
from ragbench.programs.core.confidence import probability
from ragbench.signatures import LookUpNode

Score = Literal["sum", "product"]

#: Maximum number of values of a variable, and of queries of a look-up.
MAX_VALUES = 3
#: Two queries with at least this share of their words in common count as the same look-up.
ALIKE = 0.5

_BRACES = re.compile(r"\$?\{+\s*([^{}]*?)\s*\}+")


class Source(NamedTuple):
    """The look-up and the variable that a query refers to. Blank if there is none."""

    id: str
    variable: str


@dataclass(frozen=True)
class LookUp:
    """One look-up. `stated` is True if the planner gave its confidence.

    `references` are the references in braces of the query, in order.
    """

    id: str
    query: str
    op: str = "lookup"
    depends_on: tuple[str, ...] = ()
    confidence: float = 0.5
    cost: int = 1
    produces: tuple[str, ...] = ()
    stated: bool = True
    references: tuple[Source, ...] = ()

    @property
    def computed(self) -> bool:
        """True if the answer follows from the results of other look-ups, without a search."""
        return self.op in ("compare", "aggregate") and bool(self.depends_on)

    @property
    def bindings(self) -> dict[str, Source]:
        bindings = {}
        for match, source in zip(_BRACES.finditer(self.query), self.references, strict=False):
            if source.id:
                bindings[match[0]] = source
        return bindings


@dataclass(frozen=True)
class PlanGraph:
    """Look-ups in planned or kept order. Each depends only on others in the graph."""

    nodes: tuple[LookUp, ...]

    def __iter__(self) -> Iterator[LookUp]:
        return iter(self.nodes)

    @property
    def cost(self) -> int:
        return sum(node.cost for node in self)

    @property
    def entropy(self) -> float:
        """Mean binary entropy of the stated confidences, in [0, 1]: 1 if all are 0.5."""
        entropies = []
        for p in self._stated:
            for share in (p, 1 - p):
                entropies.append(share * math.log2(share) if share else 0.0)
        if entropies:
            return -2 * fmean(entropies)
        return 0.0

    @property
    def confidence(self) -> float:
        """Mean stated confidence, in [0, 1]. It is 1 if none is stated."""
        return fmean(self._stated or [1.0])

    @property
    def _stated(self) -> list[float]:
        return [node.confidence for node in self if node.stated]

    @property
    def awaited(self) -> frozenset[str]:
        return frozenset(d for node in self for d in node.depends_on)

    def levels(self) -> list[list[LookUp]]:
        """Group the look-ups into levels that can run concurrently, in order."""
        by_id = {node.id: node for node in self}
        sorter: TopologicalSorter[str] = TopologicalSorter({i: () for i in by_id})
        for node in self:  # after all nodes, to keep their order
            sorter.add(node.id, *node.depends_on)
        sorter.prepare()
        levels = []
        while ready := sorter.get_ready():
            sorter.done(*ready)
            levels.append([by_id[i] for i in ready])
        return levels

    def wanted(self, node: LookUp) -> tuple[str, ...]:
        """Return the variables of `node` that other look-ups use.

        References from a computed look-up count only if another look-up uses its result.
        """
        used = {reference.id for later in self for reference in later.references}
        variables: dict[str, None] = {}
        for user in self:
            if user.id in used or not user.computed:
                for reference in user.references:
                    if reference.id == node.id:
                        variables[reference.variable] = None
        return tuple(variables)

    def lines(self) -> list[str]:
        lines = []
        for node in self:
            line = f"{node.id}: {node.query}"
            if node.depends_on:
                line += f" (after {', '.join(node.depends_on)})"
            if node.produces:
                line += f" -> {', '.join(node.produces)}"
            lines.append(line)
        return lines


def single(question: str) -> PlanGraph:
    """Return the plan that only looks up the question."""
    return PlanGraph((LookUp("n1", question),))


def read_plan(
    planned: Sequence[LookUpNode],
    *,
    max_nodes: int,
    mend: bool,
    count: Callable[[str], None],
) -> PlanGraph | None:
    """Convert a planner's reply to a graph.

    The look-ups are renamed to n1, n2, ... in planned order. Small models give entire phrases as
    ids, which every label of a passage would repeat.

    Args:
        planned: Look-ups of the reply.
        max_nodes: Maximum number of look-ups. Later ones are dropped.
        mend: Drop blank look-ups and dependencies on themselves or on unknown look-ups, counted as
            `mended_plan`. If False, these make the plan invalid.
        count: Callback that counts an event by name.

    Returns:
        The graph. None if the plan is invalid: no look-up, a repeated id, or a cycle.
    """
    cut = {node.id.strip() for node in planned[max_nodes:]}
    if cut:
        count("cut_nodes")
    nodes = [_look_up(node, cut) for node in planned[:max_nodes]]
    ids = {node.id for node in nodes if node.query}
    filled_in = []
    for node in nodes:
        if node.query:
            after = tuple(name for name in node.depends_on if name in ids - {node.id})
            filled_in.append(replace(node, depends_on=after))
    mended = filled_in != nodes
    if (mended and not mend) or not filled_in or len(ids) < len(filled_in):
        return None
    linked = [_linked(node, filled_in) for node in filled_in]
    try:
        PlanGraph(tuple(linked)).levels()
    except CycleError:
        return None
    if mended:
        count("mended_plan")
    short = {node.id: f"n{number}" for number, node in enumerate(linked, start=1)}
    renamed = []
    for node in linked:
        sources = [source._replace(id=short.get(source.id, "")) for source in node.references]
        after = tuple(short[name] for name in node.depends_on)
        renamed.append(
            replace(node, id=short[node.id], depends_on=after, references=tuple(sources))
        )
    return PlanGraph(tuple(renamed))


def _look_up(planned: LookUpNode, cut: set[str]) -> LookUp:
    after = (name.strip() for name in planned.depends_on)
    produces = map(variable_name, getattr(planned, "produces", ()))
    return LookUp(
        id=planned.id.strip(),
        query=one_line(planned.query),
        op=planned.op,
        depends_on=tuple(dict.fromkeys(name for name in after if name not in cut)),
        confidence=probability(planned.confidence, default=0.5),
        stated=planned.confidence is not None,
        cost=max(planned.cost, 1),
        produces=tuple(dict.fromkeys(filter(None, produces))),
    )


def _linked(node: LookUp, nodes: Sequence[LookUp]) -> LookUp:
    """Return `node` with its references, and dependencies on the look-ups that it refers to."""
    others = [candidate for candidate in nodes if candidate.id != node.id]
    references = tuple(_source(text, node, others) for text in _BRACES.findall(node.query))
    after = dict.fromkeys((*node.depends_on, *(source.id for source in references if source.id)))
    return replace(node, references=references, depends_on=tuple(after))


def _source(text: str, node: LookUp, nodes: Sequence[LookUp]) -> Source:
    """Return the source that `text` refers to. Dependencies of `node` come first."""
    name = variable_name(text)
    (head, _, tail) = text.strip().partition(".")
    for candidate in nodes:
        if candidate.id == head:
            # A reference to only an id means the first variable of that look-up.
            return Source(head, variable_name(tail) or next(iter(candidate.produces), "answer"))
    producers = [candidate.id for candidate in nodes if name in candidate.produces]
    producers.sort(key=lambda i: i not in node.depends_on)
    if not producers and len(node.depends_on) == 1:
        producers = list(node.depends_on)
    return Source(producers[0], name) if name and producers else Source("", "")


def variable_name(text: str) -> str:
    """Normalize a variable's name: lower-case words joined by underscores."""
    return "_".join(re.findall(r"\w+", text.lower()))


def consensus(plans: Sequence[PlanGraph]) -> PlanGraph:
    """Return the plan that agrees most with the others. The first one wins a tie.

    The confidence of each look-up becomes the share of all `plans` that have a similar one. A
    single plan is returned unchanged.
    """
    if len(plans) == 1:
        return plans[0]

    def rated(node: LookUp) -> LookUp:
        alike = 0
        for plan in plans:
            alike += any(jaccard(node.query, n.query) >= ALIKE for n in plan)
        return replace(node, confidence=alike / len(plans), stated=True)

    agreed = [PlanGraph(tuple(map(rated, plan))) for plan in plans]
    return max(agreed, key=lambda plan: plan.confidence)


def prune(
    graph: PlanGraph, *, budget: int, weights: Sequence[float], score: Score
) -> tuple[PlanGraph, dict[str, float]]:
    """Select look-ups greedily, by utility, until the budget is spent.

    A look-up is a candidate if its dependencies are selected and its cost fits. One without utility
    is never selected.

    Args:
        graph: Plan. It is unchanged if it fits the budget.
        budget: Maximum total cost.
        weights: Weights of confidence, novelty and position.
        score: `sum` or `product`, as in `utility`.

    Returns:
        The pruned plan in the order of selection, which may be empty, and the utility of each
        selected look-up at its selection.
    """
    chosen: dict[str, LookUp] = {}
    utilities: dict[str, float] = {}
    if graph.cost <= budget:
        return graph, utilities
    while True:
        remaining = budget - sum(node.cost for node in chosen.values())
        worth = {}
        for node in graph:
            ready = node.id not in chosen and chosen.keys() >= set(node.depends_on)
            if ready and node.cost <= remaining:
                earlier = list(chosen.values())
                worth[node] = utility(node, earlier, graph, weights=weights, score=score)
        best = max(worth, key=lambda node: worth[node], default=None)  # the first one wins a tie
        if best is None or worth[best] <= 0:
            return PlanGraph(tuple(chosen.values())), utilities
        chosen[best.id] = best
        utilities[best.id] = worth[best]


def utility(
    node: LookUp, chosen: Sequence[LookUp], graph: PlanGraph, *, weights: Sequence[float],
    score: Score,
) -> float:  # fmt: skip
    """Return the utility of a look-up, in [0, 1].

    Args:
        node: Look-up to rate.
        chosen: Look-ups that are already selected.
        graph: Plan that contains `node`.
        weights: Weights of confidence, novelty and position in the chain. Novelty is 1 minus the
            largest share of words in common with a selected query. The position is 0.9 in the
            middle of a chain, else 0.7.
        score: `sum` is the weighted sum of the published engine. `product` follows its description:
            the weighted geometric mean, so that a repeated look-up has no utility.

    Returns:
        The utility. It is 1 if all weights are 0.
    """
    novelty = 1 - max((_shared(node.query, earlier.query) for earlier in chosen), default=0.0)
    if node.depends_on and node.id in graph.awaited:
        hop = 0.9
    else:
        hop = 0.7
    total = sum(weights)
    if not total:
        return 1.0
    pairs = list(zip(weights, (node.confidence, novelty, hop), strict=True))
    if score == "sum":
        return sum(weight * value for weight, value in pairs) / total
    return float(math.prod(value ** (weight / total) for weight, value in pairs if weight))


def _shared(a: str, b: str) -> float:
    words_a = set(a.lower().split())
    words_b = set(b.lower().split())
    if words_a and words_b:
        return len(words_a & words_b) / len(words_a | words_b)
    return 0.0


def fill(
    node: LookUp, values: Mapping[Source, Sequence[str]], instead: Mapping[str, str]
) -> tuple[list[str], int]:
    """Return the queries of a look-up, one for each combination of its variables' values.

    Args:
        node: Look-up with references.
        values: Values of each variable, best first.
        instead: Replacement by look-up for a variable without values: the query that should have
            found it.

    Returns:
        At most `MAX_VALUES` distinct queries, none blank, and the number of variables without
        values.
    """
    choices = []
    unresolved = 0
    for source in node.references:
        candidates = values.get(source)
        if not candidates:
            candidates = [instead.get(source.id, "")]
            unresolved += 1
        choices.append(candidates)
    queries = []
    for chosen in islice(product(*choices), MAX_VALUES):
        texts = iter(chosen)

        def value(match: re.Match[str], texts: Iterator[str] = texts) -> str:
            return next(texts, match[0])

        queries.append(_BRACES.sub(value, node.query))
    return distinct(queries), unresolved
