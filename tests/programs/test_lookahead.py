"""LookaheadRAG by scripted conversations: each variant, part and limit; then its parts alone."""

from typing import Any

import dspy
import pytest

from ragbench.passages import Passage
from ragbench.programs.lookahead.evidence import QueryResult, assemble, triggers
from ragbench.programs.lookahead.plan import LookUp, PlanGraph
from ragbench.programs.lookahead.program import LookaheadRAG
from ragbench.record import Ledger
from ragbench.text_normalization import estimate_tokens
from tests.fakes import ScriptedLM
from tests.programs.shelf import COUNTY, converse, ended, queries, shelf, step


def node(id: str, query: str, *after: str, **fields: Any) -> dict[str, Any]:
    base = {"id": id, "query": query, "op": "lookup", "depends_on": list(after)}
    return {**base, "confidence": 0.8, "cost": 1, "produces": [], **fields}


def plan(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": list(nodes)}


def bound(**values: str) -> dict[str, Any]:
    return {"bindings": [{"variable": name, "value": value} for name, value in values.items()]}


def cited(answer: str, *citations: int) -> dict[str, Any]:
    """An answer that cites the first look-up's passages by their ranks."""
    return {"answer": answer, "citations": [f"[n1.{rank}]" for rank in citations]}


HOPS = plan(
    node("n1", "author of the novel Salt Road", op="bridge", produces=["author"]),
    node("n2", "birthplace of {author}", "n1", produces=["town"]),
    node("n3", "county of the town {town}", "n2"),
)
TWO = plan(*HOPS["nodes"][:2])


def follow(
    planned: Any, *bindings: Any, answer: dict[str, Any] | None = None, **knobs: Any
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of this plan, or of these drafts, what is bound in it, and `answer`."""
    drafts = planned if isinstance(planned, list) else [planned]
    replies = {"DraftPlanGraph": drafts, "BindVariables": list(bindings)}
    replies["AnswerFromPlan"] = [answer or cited("Dunmoor")]
    return converse(LookaheadRAG(shelf(), **knobs), COUNTY, **replies)


def test_bound_fills_each_level_with_what_the_one_before_found_out() -> None:
    found = bound(author="Orla Venn"), bound(town="Harwick")
    answer, lm, ledger = follow(HOPS, *found, answer=cited("Dunmoor", 1))
    assert ended(answer) == ("Dunmoor", "answered")
    later = ["birthplace of Orla Venn", "county of the town Harwick"]
    assert queries(answer) == ["author of the novel Salt Road", *later]
    assert len(lm.asked) == ledger.path.calls == 2 + 2  # two producers: nobody uses n3
    assert [a.inputs["variables"].split()[0] for a in lm.asked[1:3]] == ['["author"]', '["town"]']
    told = lm.asked[-1].inputs["plan"]
    assert "n1: author of the novel Salt Road -> author = Orla Venn [n1.1, n1.2" in told
    assert answer.plan[1]["queries"] == later[:1]
    assert answer.plan[1]["bindings"] == {"{author}": "n1.author"}
    assert answer.plan[0]["values"] == {"author": ["Orla Venn"]}
    assert answer.counts == {"exhaustive_retrieval": 1}  # five passages in all


def test_engine_takes_two_calls_and_sends_the_variable_as_it_stands() -> None:
    answer, lm, ledger = follow(HOPS, variant="engine")
    assert queries(answer)[1:] == ["birthplace of {author}", "county of the town {town}"]
    assert [one.notes["unresolved"] for one in answer.steps if one.action == "search"] == [0, 1, 1]
    assert len(lm.asked) == ledger.path.calls == 2


def test_a_comparison_is_made_by_the_answer_and_never_searched_for() -> None:
    comparison = plan(
        node("n1", "Salt Road author", op="bridge", produces=["author"]),
        node("n2", "{author} birthplace", "n1", produces=["town"]),
        node("n3", "Tam Quill birthplace", produces=["other"]),
        node("n4", "is {town} bigger than {other}", "n2", "n3", op="compare", produces=["bigger"]),
    )
    # What only the comparison uses is not bound.
    answer, lm, _ = follow(comparison, bound(author="Orla Venn"), answer=cited("no", 1))
    assert queries(answer) == ["Salt Road author", "Tam Quill birthplace", "Orla Venn birthplace"]
    told = lm.asked[-1].inputs["plan"]
    assert "n4: is Orla Venn birthplace bigger than Tam Quill birthplace" in told
    assert "{" not in told


BAD: dict[str, Any] = {
    "cyclic": plan(node("n1", "{n2}"), node("n2", "{n1}")),
    "same id": plan(node("n1", "a"), node("n1", "b")),
    "blank": plan(node("n1", "")),
    "variables": plan(node("a", "{b}", produces=["c"]), node("d", "{c}", produces=["b"])),
    "unreadable": "no JSON at all",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_plan_becomes_the_question(bad: str) -> None:
    answer, _, _ = follow(BAD[bad], fallback=False)
    assert queries(answer) == [n["query"] for n in answer.plan] == [COUNTY]
    assert answer.counts["bad_plan"] == 1


def test_samples_agree_on_a_plan_at_another_temperature() -> None:
    common = plan(node("n1", "author of Salt Road", confidence=0.2))
    drafts = [common, common, plan(node("n1", "weather in Rome"))]
    answer, lm, ledger = follow(drafts, samples=3)
    assert queries(answer)[0] == "author of Salt Road"
    assert answer.plan[0]["confidence"] == pytest.approx(2 / 3, abs=1e-4)
    assert (len(lm.asked), ledger.path.calls) == (4, 2)
    heat = sorted(a.request.config.temperature for a in lm.asked[:3])
    assert heat == [0.0, 0.7, 0.7]


@pytest.mark.parametrize("reply", [bound(author="unknown"), "no JSON"])
def test_an_unbound_variable_never_reaches_the_retriever(reply: Any) -> None:
    answer, _, _ = follow(TWO, reply)
    assert queries(answer)[1] == "birthplace of author of the novel Salt Road"
    assert not any("{" in query for query in queries(answer))
    assert step(answer, "fallback").notes["triggers"] == ["critical"]


def test_a_tight_budget_prunes_and_says_so() -> None:
    nodes = [node(f"n{i}", f"town {i} Harwick", confidence=i / 5) for i in range(1, 6)]
    answer, _, _ = follow(plan(*nodes), budget=2, fallback=False)
    assert len(answer.searches) == len(answer.plan) == 2
    assert step(answer, "prune").observation == "left out: n1, n2, n3"
    whole, _, _ = follow(plan(*nodes), fallback=False, prune=False, confidence_threshold=0)
    assert len(whole.searches) == 5


@pytest.mark.parametrize(("least", "kept"), [(0.0, 2), (9.0, 2), (0.68, 1)])
def test_a_reranker_orders_cuts_and_keeps_all_where_none_reaches_the_least(
    least: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ByLength:
        def score(self, query: str, passages: list[Passage]) -> list[float]:
            assert query == "town county"
            return [len(p.text) / 100 for p in passages]

    module = "ragbench.programs.lookahead.program"
    monkeypatch.setattr(f"{module}.make_reranker", lambda spec: ByLength())
    knobs = {"rerank": "maxsim", "rerank_keep": 2, "fallback": False, "rerank_min": least}
    answer, _, _ = follow(plan(node("n1", "town county")), **knobs)
    pids = step(answer, "context").pids
    assert (len(pids), pids[0]) == (kept, "Eastmere")  # the longer of the two towns


def test_fallback_searches_further_and_shows_it_as_evidence() -> None:
    nothing = plan(node("n1", "zzz"))
    answer, lm, _ = follow(nothing, answer=cited("Dunmoor", 1))
    assert step(answer, "fallback").notes["triggers"] == ["passages", "coverage"]
    assert queries(answer) == ["zzz", "county author salt road born"]
    assert step(answer, "context").notes["labels"][0] == "f1.1"
    assert "f1: county author salt road born [f1.1, " in lm.asked[-1].inputs["plan"]
    assert answer.counts["fallback"] == 1


def test_citations_are_checked_and_point_into_the_passages() -> None:
    two = plan(node("n1", "Orla Venn"), node("n2", "Harwick Dunmoor"))
    answer, lm, _ = follow(two, answer=cited("Dunmoor", 2, 99, 0, 2, 1))
    assert (answer.citations, answer.counts["unknown_citation"]) == ([2, 1], 2)
    labels = step(answer, "context").notes["labels"]
    assert step(answer, "answer").notes["citations"] == [labels[1], labels[0]]
    assert step(answer, "answer").pids == tuple(answer.passages[n - 1].pid for n in (2, 1))
    for label, passage in zip(labels, answer.passages, strict=True):
        assert f"[{label}] {passage.title} |" in lm.asked[-1].inputs["context"]


# -- the parts


def page(n: int, words: str) -> Passage:
    return Passage(f"p{n}", f"T{n}", words)


def looked_up(
    id: str, *passages: Passage, sure: float = 0.5, after: Any = (), unbound: Any = ()
) -> QueryResult:
    node = LookUp(id, f"query {id}", confidence=sure, depends_on=after)
    return QueryResult(node, (node.query,), passages, {}, unbound)


def test_near_duplicates_are_shown_once_and_shares_follow_confidence() -> None:
    one, same, other = page(1, "a b c d e"), page(2, "a b c d e"), page(3, "v w x y z")
    found = [looked_up("n1", one), looked_up("n2", one, same, other)]
    evidence, duplicates = assemble(found, max_tokens=1000)
    assert [item.line for item in evidence] == ["[n1.1] T1 | a b c d e", "[n2.3] T3 | v w x y z"]
    assert duplicates == 2
    long = [page(n, " ".join(f"w{n}x{i:03}" for i in range(514))) for n in (1, 2)]
    found = [looked_up("n1", long[0], sure=0.9), looked_up("n2", long[1], sure=0.3)]
    sizes = [estimate_tokens(item.line) for item in assemble(found, max_tokens=400)[0]]
    assert sizes == [pytest.approx(300, abs=5), pytest.approx(100, abs=5)]


PAIR = (page(1, "a"), page(2, "b"))
SURE = looked_up("a", *PAIR, sure=0.9)
LATER = looked_up("b", *PAIR, sure=0.9, after=("a",))


@pytest.mark.parametrize(
    ("found", "fired"),
    [
        ([SURE], []),
        ([looked_up("a", *PAIR[:1], sure=0.9)], ["passages"]),
        ([SURE, *(looked_up(name, sure=0.9) for name in "bcd")], ["coverage"]),
        ([looked_up("a", *PAIR, sure=0.5)], ["entropy"]),
        ([looked_up("a", *PAIR, sure=0.1)], ["confidence"]),
        ([looked_up("a", sure=0.9), LATER], ["critical"]),
        ([looked_up("a", *PAIR, sure=0.9, unbound=("x",)), LATER], ["critical"]),
    ],
)
def test_each_trigger_can_fire_alone(found: list[QueryResult], fired: list[str]) -> None:
    plan = PlanGraph(tuple(item.node for item in found))
    assert triggers(plan, found, published=False) == fired
    reachable = [name for name in fired if name in ("passages", "confidence")]
    assert triggers(plan, found, published=True) == reachable  # of the engine
