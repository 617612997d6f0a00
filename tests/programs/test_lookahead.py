"""LookaheadRAG by scripted conversations: each variant, part and limit."""

from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError
from ragbench.programs.lookahead.program import LookaheadRAG
from ragbench.record import Ledger
from ragbench.retrievers.base import Passage
from tests.fakes import ScriptedLM
from tests.programs.shelf import converse, shelf

QUESTION = "In which county was the author of Salt Road born?"


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


def queries(prediction: dspy.Prediction) -> list[str]:
    return [search.query for search in prediction.searches]


def step(prediction: dspy.Prediction, action: str) -> Any:
    return next(s for s in prediction.steps if s.action == action)


def follow(
    planned: Any, *bindings: Any, answer: dict[str, Any] | None = None, **knobs: Any
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of this plan, what is bound in it, and `answer`."""
    return converse(
        LookaheadRAG(shelf(), **knobs),
        QUESTION,
        DraftPlanGraph=[planned],
        BindVariables=list(bindings),
        AnswerFromPlan=[answer or cited("Dunmoor")],
    )


# -- variants


def test_bound_fills_each_level_with_what_the_one_before_found_out() -> None:
    found = bound(author="Orla Venn"), bound(town="Harwick")
    answer, lm, ledger = follow(HOPS, *found, answer=cited("Dunmoor", 1))
    assert (answer.answer, answer.stop_reason) == ("Dunmoor", "answered")
    assert queries(answer) == [
        "author of the novel Salt Road",
        "birthplace of Orla Venn",
        "county of the town Harwick",
    ]
    assert len(lm.asked) == ledger.path.calls == 2 + 2  # two producers: nobody uses n3
    assert [a.inputs["variables"].split()[0] for a in lm.asked[1:3]] == ['["author"]', '["town"]']
    shown = lm.asked[-1].inputs["plan"]
    assert "n1: author of the novel Salt Road -> author = Orla Venn [n1.1, n1.2" in shown
    assert answer.plan[1]["queries"] == ["birthplace of Orla Venn"]
    assert answer.plan[1]["bindings"] == {"{author}": "n1.author"}
    assert answer.plan[0]["values"] == {"author": ["Orla Venn"]}
    assert answer.counts == {}


def test_engine_takes_two_calls_and_sends_the_variable_as_it_stands() -> None:
    answer, lm, ledger = follow(HOPS, variant="engine")
    assert queries(answer)[1:] == ["birthplace of {author}", "county of the town {town}"]
    assert answer.counts["unresolved_variable"] == 2
    assert len(lm.asked) == ledger.path.calls == 2


def test_levels_run_at_once_and_one_by_one_if_told_so() -> None:
    wide = plan(
        node("n1", "author of Salt Road", produces=["a"]),
        node("n2", "writer Tam Quill", produces=["b"]),
        node("n3", "did {a} know {b}"),
    )
    found = bound(x="Orla"), bound(x="Orla")
    _, lm, ledger = follow(wide, *found)
    assert (len(lm.asked), ledger.path.calls) == (4, 3)
    one, lm, ledger = follow(wide, *found, parallel=False)
    assert (len(lm.asked), ledger.path.calls) == (4, 4)
    assert [s.action for s in one.steps][:5] == ["plan", "search", "bind", "search", "bind"]


COMPARISON = plan(
    node("n1", "Salt Road author", op="bridge", produces=["author"]),
    node("n2", "{author} birthplace", "n1", produces=["town"]),
    node("n3", "Tam Quill birthplace", produces=["other"]),
    node("n4", "is {town} bigger than {other}", "n2", "n3", op="compare", produces=["bigger"]),
)


def test_a_comparison_is_made_by_the_answer_and_never_searched_for() -> None:
    # What only the comparison uses is not bound.
    answer, lm, _ = follow(COMPARISON, bound(author="Orla Venn"), answer=cited("no", 1))
    assert queries(answer) == ["Salt Road author", "Tam Quill birthplace", "Orla Venn birthplace"]
    assert len(lm.asked) == 3
    told = lm.asked[-1].inputs["plan"]
    assert "n4: is Orla Venn birthplace bigger than Tam Quill birthplace" in told
    assert "{" not in told
    assert "unresolved_variable" not in answer.counts


# -- bad plans


@pytest.mark.parametrize(
    "bad",
    [
        plan(node("n1", "{n2}"), node("n2", "{n1}")),
        plan(node("n1", "a"), node("n1", "b")),
        plan(),
        plan(node("n1", "")),
        "no JSON at all",
    ],
    ids=["cyclic", "same id", "empty", "blank", "unreadable"],
)
def test_a_bad_plan_becomes_the_question(bad: Any) -> None:
    answer, _, _ = follow(bad, fallback=False)
    assert queries(answer) == [QUESTION]
    assert answer.counts["bad_plan"] == 1
    assert [n["query"] for n in answer.plan] == [QUESTION]


def test_samples_agree_on_a_plan_at_another_temperature() -> None:
    common = plan(node("n1", "author of Salt Road", confidence=0.2))
    answer, lm, ledger = converse(
        LookaheadRAG(shelf(), samples=3),
        QUESTION,
        DraftPlanGraph=[common, common, plan(node("n1", "weather in Rome"))],
        AnswerFromPlan=[cited("Dunmoor")],
    )
    assert queries(answer)[0] == "author of Salt Road"
    assert answer.plan[0]["confidence"] == pytest.approx(2 / 3, abs=1e-4)
    assert (len(lm.asked), ledger.path.calls) == (4, 2)
    heat = sorted(a.request.config.temperature for a in lm.asked[:3])
    assert heat == [0.0, 0.7, 0.7]


# -- variables


def test_several_values_search_for_each_and_fuse() -> None:
    two = plan(
        node("n1", "authors of Salt Road", produces=["author"]),
        node("n2", "birthplace of {author}", "n1"),
    )
    values = [{"variable": "author", "value": name} for name in ("Orla Venn", "Tam Quill")]
    answer, _, _ = follow(two, {"bindings": values})
    assert queries(answer)[1:] == ["birthplace of Orla Venn", "birthplace of Tam Quill"]
    second = [s for s in answer.steps if s.action == "search"][1]
    assert {"Orla Venn", "Tam Quill"} <= set(second.pids)


@pytest.mark.parametrize("reply", [bound(), bound(author="unknown"), "no JSON"])
def test_an_unbound_variable_never_reaches_the_retriever(reply: Any) -> None:
    answer, _, _ = follow(plan(*HOPS["nodes"][:2]), reply)
    assert queries(answer)[1] == "birthplace of author of the novel Salt Road"
    assert not any("{" in query for query in queries(answer))
    assert answer.counts["unresolved_variable"] == 1
    assert step(answer, "fallback").notes["triggers"] == ["critical"]


# -- pruner


def test_a_tight_budget_prunes_and_says_so() -> None:
    nodes = [node(f"n{i}", f"town {i} Harwick", confidence=i / 5) for i in range(1, 6)]
    answer, _, _ = follow(plan(*nodes), budget=2, fallback=False)
    assert len(answer.searches) == len(answer.plan) == 2
    assert (answer.counts["unsure_nodes"], answer.counts["pruned_nodes"]) == (1, 2)
    whole, _, _ = follow(plan(*nodes), fallback=False, prune=False, confidence_threshold=0)
    assert len(whole.searches) == 5


# -- rerank


def test_lm_reranks_each_look_up_against_its_query_or_the_question() -> None:
    two = plan(node("n1", "Orla Venn novel"), node("n2", "Harwick county"))
    for variables, asked in (("bind", "Orla Venn novel"), ("keep", QUESTION)):
        knobs = {"variables": variables, "rerank_keep": 1, "fallback": False}
        answer, lm, ledger = converse(
            LookaheadRAG(shelf(), rerank="lm", **knobs),
            QUESTION,
            DraftPlanGraph=[two],
            SelectItems=[{"keep": [2]}, {"keep": [2]}],
            AnswerFromPlan=[cited("Dunmoor")],
        )
        shown = {a.inputs["question"] for a in lm.asked if a.signature == "SelectItems"}
        assert asked in shown
        searched = next(s for s in answer.steps if s.action == "search")
        assert step(answer, "judge").pids == searched.pids[1:2]
        assert (len(lm.asked), ledger.path.calls) == (4, 3)
        assert len(step(answer, "context").pids) <= 2
        assert [c.role for c in ledger.calls if c.signature == "SelectItems"] == ["judge"] * 2


def test_a_scorer_orders_cuts_and_keeps_all_where_none_reaches_the_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ByLength:
        def score(self, query: str, passages: list[Passage]) -> list[float]:
            asked.append(query)
            return [len(p.text) / 100 for p in passages]

    asked: list[str] = []
    module = "ragbench.programs.lookahead.program"
    monkeypatch.setattr(f"{module}.make_reranker", lambda spec: ByLength())
    one = plan(node("n1", "town county"))
    for least, kept in ((0.0, 2), (9.0, 2), (0.68, 1)):
        knobs = {"rerank": "maxsim", "rerank_keep": 2, "rerank_min": least, "fallback": False}
        answer, _, _ = follow(one, **knobs)
        shown = step(answer, "context").pids
        assert len(shown) == kept
        assert shown[0] == "Eastmere"  # the longer of the two towns
    assert set(asked) == {"town county"}


def test_an_unknown_reranker_is_refused_when_the_program_is_made() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        LookaheadRAG(shelf(), rerank="nonsense")


# -- fallback


def test_fallback_searches_further_and_shows_it_as_evidence() -> None:
    nothing = plan(node("n1", "zzz"))
    answer, lm, _ = follow(nothing, answer=cited("Dunmoor", 1))
    assert step(answer, "fallback").notes["triggers"] == ["passages", "coverage"]
    assert queries(answer) == ["zzz", "county author salt road born"]
    assert step(answer, "context").notes["labels"][0] == "f1.1"
    assert "f1: county author salt road born [f1.1, " in lm.asked[-1].inputs["plan"]
    assert answer.counts["fallback"] == 1
    off, _, _ = follow(nothing, fallback=False)
    assert queries(off) == ["zzz"]
    assert off.passages == []  # nothing found at all still ends in an answer


def test_unsure_plans_fall_back_but_in_the_engine() -> None:
    unsure = plan(node("n1", "novel caravan writer", confidence=0.5))
    for variant, fired in (("bound", ["entropy"]), ("engine", None)):
        answer, _, _ = follow(unsure, variant=variant)
        triggers = [s.notes["triggers"] for s in answer.steps if s.action == "fallback"]
        assert triggers == ([fired] if fired else [])


# -- context and citations


def test_citations_are_checked_and_point_into_the_passages() -> None:
    two = plan(node("n1", "Orla Venn"), node("n2", "Harwick Dunmoor"))
    answer, lm, _ = follow(two, answer=cited("Dunmoor", 2, 99, 0, 2, 1))
    assert answer.citations == [2, 1]
    assert answer.counts["unknown_citation"] == 2
    labels = step(answer, "context").notes["labels"]
    assert step(answer, "answer").notes["citations"] == [labels[1], labels[0]]
    assert step(answer, "answer").pids == tuple(answer.passages[n - 1].pid for n in (2, 1))
    for number, label in enumerate(labels, start=1):
        title = answer.passages[number - 1].title
        assert label.startswith("n")
        assert f"[{label}] {title} |" in lm.asked[-1].inputs["context"]


# -- limits


def test_calls_that_the_budget_does_not_allow_are_left_out() -> None:
    answer, _, _ = follow(plan(*HOPS["nodes"][:2]), max_calls=2)
    assert answer.stop_reason == "budget"
    assert queries(answer)[1] == "birthplace of author of the novel Salt Road"
    only, _, _ = converse(
        LookaheadRAG(shelf(), max_calls=1), QUESTION, AnswerFromPlan=[cited("Dunmoor")]
    )
    assert (only.answer, only.stop_reason) == ("Dunmoor", "budget")
    assert queries(only)[0] == QUESTION
