"""The plan of `lookahead`: a graph of look-ups, read off a reply, chosen from, and filled.

A query refers to what another look-up finds out as {variable}, {id} or {id.variable}. A name that
no look-up produces means whatever the only dependency finds out.
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

#: Values of a variable at the most, and queries of a look-up that uses several.
MAX_VALUES = 3
#: Two queries with at least this share of their words in common count as the same look-up.
ALIKE = 0.5

_BRACES = re.compile(r"\$?\{+\s*([^{}]*?)\s*\}+")


class Source(NamedTuple):
    """The look-up that finds out what a query refers to, and the variable; blank if none does."""

    id: str
    variable: str


@dataclass(frozen=True)
class LookUp:
    """One look-up; `stated` tells a confidence that the planner gave from one that it left out.

    `references` are those in braces in the query, in order.
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
        """Whether it is worked out from what the look-ups that it waits for find."""
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
    """Look-ups in the order planned, or kept; each depends on others of them alone."""

    nodes: tuple[LookUp, ...]

    def __iter__(self) -> Iterator[LookUp]:
        return iter(self.nodes)

    @property
    def cost(self) -> int:
        return sum(node.cost for node in self)

    @property
    def entropy(self) -> float:
        """Mean binary entropy of the stated confidences, in [0, 1]: 1 where all are 0.5."""
        entropies = []
        for p in self._stated:
            for share in (p, 1 - p):
                entropies.append(share * math.log2(share) if share else 0.0)
        if entropies:
            return -2 * fmean(entropies)
        return 0.0

    @property
    def confidence(self) -> float:
        """Mean stated confidence, in [0, 1]; 1 where none is stated."""
        return fmean(self._stated or [1.0])

    @property
    def _stated(self) -> list[float]:
        return [node.confidence for node in self if node.stated]

    @property
    def awaited(self) -> frozenset[str]:
        return frozenset(d for node in self for d in node.depends_on)

    def levels(self) -> list[list[LookUp]]:
        """The look-ups that can run at once, by level, in the order in which they are ready."""
        by_id = {node.id: node for node in self}
        sorter: TopologicalSorter[str] = TopologicalSorter({i: () for i in by_id})
        for node in self:  # all are in it by now, in order
            sorter.add(node.id, *node.depends_on)
        sorter.prepare()
        levels = []
        while ready := sorter.get_ready():
            sorter.done(*ready)
            levels.append([by_id[i] for i in ready])
        return levels

    def wanted(self, node: LookUp) -> tuple[str, ...]:
        """The variables of `node` that others use, but for a comparison that the answer makes."""
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
    """The plan of looking up the question itself."""
    return PlanGraph((LookUp("n1", question),))


def read_plan(
    planned: Sequence[LookUpNode],
    *,
    max_nodes: int,
    mend: bool,
    count: Callable[[str], None],
) -> PlanGraph | None:
    """The graph that a planner's reply describes; look-ups after the first `max_nodes` are cut.

    They are called n1, n2, ... in the order planned: small models give whole phrases as ids, which
    every label of a passage would repeat.

    With `mend`, blank look-ups and dependencies on themselves or on unknown ones are left out, and
    the plan is counted as `mended_plan`. Without it any of these makes the plan a bad one, which
    is None, as do always no look-up, the same id twice, and a circle.
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
    """`node` with its references found, and a dependency on each look-up that it refers to."""
    unlinked = []
    for candidate in nodes:
        if candidate.id != node.id:
            unlinked.append(candidate)
    references = tuple(_source(text, node, unlinked) for text in _BRACES.findall(node.query))
    after = dict.fromkeys((*node.depends_on, *(source.id for source in references if source.id)))
    return replace(node, references=references, depends_on=tuple(after))


def _source(text: str, node: LookUp, nodes: Sequence[LookUp]) -> Source:
    """What `text` refers to; a look-up that `node` waits for comes first."""
    name = variable_name(text)
    (head, _, tail) = text.strip().partition(".")
    for candidate in nodes:
        if candidate.id == head:
            # What is asked of a look-up by its id alone is the first thing that it finds out.
            return Source(head, variable_name(tail) or next(iter(candidate.produces), "answer"))
    producers = [candidate.id for candidate in nodes if name and name in candidate.produces]
    producers.sort(key=lambda i: i not in node.depends_on)
    if not producers and name and len(node.depends_on) == 1:
        producers = list(node.depends_on)
    if producers:
        return Source(producers[0], name)
    return Source("", "")


def variable_name(text: str) -> str:
    """A variable's name in one spelling: words of lower case joined by underscores."""
    return "_".join(re.findall(r"\w+", text.lower()))


def consensus(plans: Sequence[PlanGraph]) -> PlanGraph:
    """The plan that agrees most with the others (the first of equals).

    The confidence of each of its look-ups becomes the share of `plans`, its own included, that have
    a like one. A single plan comes back as it is.
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
    """The plan within `budget`, and the utility of each kept look-up when it was chosen.

    A plan that costs no more is untouched. Greedy: of the look-ups whose dependencies are kept and
    that fit, the one of most utility is kept next; one without any is left out. They stay in the
    order kept, of which there may be none.
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
        best = max(worth, key=lambda node: worth[node], default=None)  # the first of equals
        if best is None or worth[best] <= 0:
            return PlanGraph(tuple(chosen.values())), utilities
        chosen[best.id] = best
        utilities[best.id] = worth[best]


def utility(
    node: LookUp, chosen: Sequence[LookUp], graph: PlanGraph, *, weights: Sequence[float],
    score: Score,
) -> float:  # fmt: skip
    """The worth of `node` beside those `kept`, in [0, 1]; 1 where no weight is above 0.

    The `weights` are of confidence, novelty and place in the chain. Novelty is 1 less the largest
    share of words, as written, in common with a kept query; the place is worth 0.9 in the middle of
    a chain, else 0.7. The published engine weighs them as a sum; its description says a product,
    which here is the weighted geometric mean, so that a look-up that repeats another is worth
    nothing however sure it is.
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
    """The queries of `node`, one per combination of its variables' values, and how many had none.

    A variable without any of `values`, best first, gives way to `instead` of its look-up (the query
    that should have found it), or to nothing. At most `MAX_VALUES` queries come back, none blank.
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
