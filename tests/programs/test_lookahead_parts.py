"""The parts of LookaheadRAG by themselves: graph, variables, pruner, samples, context, fallback."""

from collections import Counter
from typing import Any

import pytest

from ragbench.programs.lookahead.evidence import LookedUp, assemble, reformulations, triggers
from ragbench.programs.lookahead.plan import (
    BadPlanError,
    LookUp,
    PlanGraph,
    Score,
    Source,
    fill,
    prune,
    read_plan,
    utility,
)
from ragbench.programs.lookahead.program import read_bindings
from ragbench.retrievers.base import Passage
from ragbench.signatures.types import Binding, PlanNode
from ragbench.tokens import estimate_tokens

WEIGHTS = (0.4, 0.3, 0.3)


def planned(id: str, query: str, *after: str, **fields: Any) -> PlanNode:
    return PlanNode(id=id, query=query, depends_on=list(after), **fields)


def graph(*nodes: PlanNode, mend: bool = True, most: int = 9) -> PlanGraph:
    return read_plan(nodes, max_nodes=most, mend=mend)


# -- graph


def test_in_a_circle_what_is_declared_on_later_ones_is_mended_or_makes_the_plan_bad() -> None:
    circle = [
        planned("a", "author of {c}", "b", produces=["one"]),
        planned("b", "county of {one}", "a"),
        planned("c", "a book", "b"),
    ]
    with pytest.raises(BadPlanError, match="wait for each other"):
        read_plan(circle, max_nodes=9, mend=True)  # a query refers to c, which waits for b
    counts: Counter[str] = Counter()
    circle[0].query = "author of a book"
    plan = read_plan(circle, max_nodes=9, mend=True, count=lambda event: counts.update([event]))
    assert [n.depends_on for n in plan] == [(), ("n1",), ("n2",)]
    assert counts == {"mended_plan": 1}
    with pytest.raises(BadPlanError, match="wait for each other"):
        read_plan(circle, max_nodes=9, mend=False)


@pytest.mark.parametrize(
    ("query", "after", "source"),
    [
        ("birthplace of {author}", (), "n1.author"),
        ("birthplace of { Author }", (), "n1.author"),
        ("birthplace of ${author}", (), "n1.author"),
        ("birthplace of {{author}}", (), "n1.author"),
        ("birthplace of {n1}", (), "n1.author"),
        ("birthplace of {n1.author}", (), "n1.author"),
        ("birthplace of {writer}", ("n1",), "n1.writer"),
    ],
)
def test_the_ways_to_name_a_variable(query: str, after: tuple[str, ...], source: str) -> None:
    plan = graph(planned("n1", "who wrote it", produces=["author"]), planned("n2", query, *after))
    node = plan.nodes[1]
    assert list(LookedUp(node).to_dict()["bindings"].values()) == [source]
    assert node.depends_on == ("n1",)
    name = source.partition(".")[2]
    assert plan.wanted(plan.nodes[0]) == (name,)
    assert fill(node, {Source("n1", name): ["Orla"]}, {}) == (["birthplace of Orla"], 0)


@pytest.mark.parametrize("query", ["author of [sic] 1984", "birthplace of author", "n7 and <b>"])
def test_what_names_no_variable_stays(query: str) -> None:
    plan = graph(planned("n1", "who wrote it", produces=["author"]), planned("n2", query))
    assert plan.nodes[1].references == ()
    assert fill(plan.nodes[1], {}, {}) == ([query], 0)


def test_entropy_of_the_confidences_is_between_0_and_1() -> None:
    def of(*confidences: float) -> float:
        return PlanGraph(tuple(LookUp(str(c), "x", confidence=c) for c in confidences)).entropy

    assert of(0.5) == 1.0
    assert of(0.0) == of(1.0) == 0.0
    assert of(0.9) == pytest.approx(0.469, abs=1e-3)
    assert of(0.5, 1.0) == 0.5


# -- variables


def rows(**values: str) -> list[Binding]:
    return [Binding(variable=name, value=value) for name, value in values.items()]


def test_values_are_read_by_name_once_each_and_without_evasions() -> None:
    given = [
        *rows(Author="Orla Venn."),
        *rows(author="orla venn"),
        *rows(author="Tam Quill"),
        *rows(year="unknown"),
        *rows(other="x"),
    ]
    assert read_bindings(given, ["author", "year"]) == {"author": ("Orla Venn", "Tam Quill")}


def pair() -> PlanGraph:
    return graph(
        planned("n1", "writers", produces=["writer"]),
        planned("n2", "towns", produces=["town"]),
        planned("n3", "did {writer} live in {town}"),
    )


def test_a_variable_without_a_value_gives_way_to_the_query_that_should_have_found_it() -> None:
    values = {Source("n1", "writer"): ["Orla"]}
    filled = fill(pair().nodes[2], values, {"n2": "towns"})
    assert filled == (["did Orla live in towns"], 1)
    assert fill(pair().nodes[2], {}, {}) == (["did live in"], 2)


# -- pruner


def test_a_tight_budget_keeps_the_best_whose_dependencies_are_kept() -> None:
    plan = graph(
        planned("a", "author of the book", confidence=0.2),
        planned("b", "birthplace of {a}", confidence=1.0),
        planned("c", "Eastmere population", confidence=0.9),
    )
    one, _ = prune(plan, budget=1, weights=WEIGHTS, score="sum")
    assert [n.id for n in one] == ["n3"]  # n2 is surer, but waits for n1
    two, utilities = prune(plan, budget=2, weights=WEIGHTS, score="sum")
    assert [n.id for n in two] == ["n3", "n1"]  # in the order kept
    # a: 0.4 * 0.2 + 0.3 * 1 + 0.3 * 0.7, c first: 0.4 * 0.9 + 0.3 * 1 + 0.3 * 0.7
    assert utilities == pytest.approx({"n3": 0.87, "n1": 0.59})


@pytest.mark.parametrize(("score", "kept"), [("sum", ["n1", "n2"]), ("product", ["n1", "n3"])])
def test_product_drops_a_repeated_look_up_that_the_sum_keeps(score: Score, kept: list[str]) -> None:
    plan = graph(
        planned("a", "author of Salt Road", confidence=0.9),
        planned("b", "author of Salt Road", confidence=0.9),
        planned("c", "towns of Tollen", confidence=0.1),
    )
    weights = (0.8, 0.1, 0.1)
    result, _ = prune(plan, budget=2, weights=weights, score=score)
    assert [n.id for n in result] == kept


def test_utility_by_hand() -> None:
    plan = graph(
        planned("a", "author of Salt Road", confidence=0.5, op="bridge"),
        planned("b", "county of Salt Road", "a", confidence=0.8),
    )
    a, b = plan
    # novelty: 1 - 3 / 5, since of, salt and road are shared; hop: 0.7 at the ends of a chain
    total = utility(b, [a], plan, weights=WEIGHTS, score="sum")
    assert total == pytest.approx(0.4 * 0.8 + 0.3 * 0.4 + 0.3 * 0.7)
    product = utility(b, [a], plan, weights=WEIGHTS, score="product")
    assert product == pytest.approx(0.8**0.4 * 0.4**0.3 * 0.7**0.3)


# -- samples


# -- context


def page(n: int, words: str) -> Passage:
    return Passage(f"p{n}", f"T{n}", words)


def looked_up(
    id: str, *passages: Passage, confidence: float = 0.5, query: str = "", op: str = "lookup",
    after: tuple[str, ...] = (), unbound: tuple[str, ...] = (),
) -> LookedUp:  # fmt: skip
    node = LookUp(id, query or f"query {id}", op=op, confidence=confidence, depends_on=after)
    return LookedUp(node, (node.query,), passages, {}, unbound)


def test_near_duplicates_are_shown_once_under_the_first_label() -> None:
    one, same, other = page(1, "a b c d e"), page(2, "a b c d e"), page(3, "v w x y z")
    found = [looked_up("n1", one), looked_up("n2", one, same, other)]
    evidence, duplicates = assemble(found, max_tokens=1000)
    assert [item.label for item in evidence] == ["n1.1", "n2.3"]
    assert [item.line for item in evidence] == ["[n1.1] T1 | a b c d e", "[n2.3] T3 | v w x y z"]
    assert duplicates == 2


def long_page(n: int, tokens: int) -> Passage:
    return page(n, " ".join(f"w{n}x{i:03}" for i in range(tokens * 4 // 7)))


def test_shares_follow_confidence_and_the_whole_fits() -> None:
    found = [
        looked_up("n1", long_page(1, 900), confidence=0.9),
        looked_up("n2", long_page(2, 900), confidence=0.3),
    ]
    evidence, _ = assemble(found, max_tokens=400)
    sizes = [estimate_tokens(item.line) for item in evidence]
    assert sizes[0] == pytest.approx(300, abs=5)
    assert sizes[1] == pytest.approx(100, abs=5)
    assert sum(sizes) <= 400
    last = long_page(1, 900).text.split()[-1]
    assert last in evidence[0].line  # it is cut in its middle
    assert " ..." in evidence[0].line


# -- fallback


def fired(found: list[LookedUp], *, published: bool = False) -> list[str]:
    plan = PlanGraph(tuple(item.node for item in found))
    return triggers(plan, found, published=published)


def test_each_trigger_can_fire_alone() -> None:
    two = (page(1, "a"), page(2, "b"))
    assert fired([looked_up("a", *two, confidence=0.9)]) == []
    assert fired([looked_up("a", *two[:1], confidence=0.9)]) == ["passages"]
    empty = [looked_up(name, confidence=0.9) for name in "bcd"]
    assert fired([looked_up("a", *two, confidence=0.9), *empty]) == ["coverage"]
    assert fired([looked_up("a", *two, confidence=0.5)]) == ["entropy"]
    assert fired([looked_up("a", *two, confidence=0.1)]) == ["confidence"]
    later = looked_up("b", *two, confidence=0.9, after=("a",))
    assert fired([looked_up("a", confidence=0.9), later]) == ["critical"]
    assert fired([looked_up("a", *two, confidence=0.9, unbound=("x",)), later]) == ["critical"]
    assert fired([looked_up("a", confidence=0.5), later], published=True) == []
    empty_end = looked_up("b", confidence=0.9, after=("a",))
    assert fired([looked_up("a", *two, confidence=0.9), empty_end]) == []


def test_reformulations_in_order_without_those_tried() -> None:
    question = "In which county was the author of Salt Road born?"
    found = [
        looked_up("n1", page(1, "a"), query="Who is the author of Salt Road?", op="bridge"),
        looked_up("n2", query="Where is Harwick?", after=("n1",)),
    ]
    nodes = reformulations(question, found, tried=["where is harwick"], most=3)
    assert [(n.id, n.query) for n in nodes] == [
        ("f1", "Harwick"),
        ("f2", "the author of Salt Road Harwick"),
        ("f3", "county author salt road born"),
    ]
    found = [looked_up("n1", query="author of Salt Road in 1999")]
    nodes = reformulations(question, found, tried=["author of Salt Road in 1999"], most=2)
    assert [n.query for n in nodes] == [
        "written by Salt Road in 1999",  # a synonym
        "Salt Road 1999",  # broader: the names alone
    ]
