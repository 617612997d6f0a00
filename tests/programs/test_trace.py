"""The state of one question: budget, searches, fallbacks, fan-out, rendering."""

from __future__ import annotations

import threading

import dspy
import pytest

from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs.base import predict
from ragbench.programs.trace import Budget, BudgetSpentError, Trace, render
from ragbench.retrievers.base import Passage
from ragbench.signatures.answering import DirectAnswer
from tests.fakes import Asked, Reply, ScriptedLM, never_parses
from tests.programs.shelf import shelf


def new_trace(*, calls: int = 10, searches: int = 10) -> Trace:
    return Trace("Who wrote Salt Road?", shelf(), Budget(calls, searches))


def test_budget_keeps_one_call_back_for_the_forced_answer() -> None:
    budget = Budget(3, 0)
    budget.spend_call()
    budget.spend_call()
    assert budget.calls_left == 0
    with pytest.raises(BudgetSpentError):
        budget.spend_call()
    budget.spend_call(last=True)
    with pytest.raises(BudgetSpentError):
        budget.spend_call(last=True)
    assert budget.calls == 3


def test_a_repeated_search_costs_nothing_and_is_noted_as_cached() -> None:
    trace = new_trace(searches=1)
    first = trace.search("Salt Road", k=2)
    assert trace.search("Salt Road", k=2) == first
    assert [search.cached for search in trace.searches] == [False, True]
    assert trace.budget.retrievals == 1
    with pytest.raises(BudgetSpentError):
        trace.search("Salt Road", k=3)


def test_search_many_counts_each_new_query_once() -> None:
    trace = new_trace()
    lists = trace.search_many(["Harwick", "Eastmere", "Harwick"], k=1)
    assert [found[0].pid for found in lists] == ["Harwick", "Eastmere", "Harwick"]
    assert trace.budget.retrievals == 2
    assert [search.query for search in trace.searches] == ["Harwick", "Eastmere", "Harwick"]
    assert [passage.pid for passage in trace.passages] == ["Harwick", "Eastmere"]


def test_an_unreadable_reply_takes_the_default_and_is_counted() -> None:
    lm = ScriptedLM(never_parses)
    trace = new_trace()
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        reply = trace.ask(predict(DirectAnswer), otherwise={"answer": "x"}, question="Who?")
    assert (reply.answer, reply.parse_fallback) == ("x", True)
    assert trace.counts["parse_fallback"] == 1


def test_a_role_can_have_an_lm_of_its_own() -> None:
    usual, own = ScriptedLM(name="usual"), ScriptedLM(name="own")
    adapter = make_adapter("json", usual)
    with dspy.context(lm=usual, adapter=adapter, rb_role_lms={"answer": own}):
        new_trace().ask(predict(DirectAnswer), question="Who?")
    assert (len(usual.asked), len(own.asked)) == (0, 1)


def test_fan_out_merges_logs_in_input_order_whatever_the_timing() -> None:
    trace, first_may_end = new_trace(), threading.Event()

    def item(name: str) -> str:
        if name == "a":
            assert first_may_end.wait(5)
        trace.step("think", thought=name)
        trace.search(name, k=1)
        first_may_end.set()
        return name

    assert trace.fan_out(item, ["a", "b"]) == ["a", "b"]
    assert [step.thought for step in trace.steps] == ["a", "b"]
    assert [search.query for search in trace.searches] == ["a", "b"]


def test_fan_out_is_cut_to_the_budget_before_anything_runs() -> None:
    trace = new_trace(calls=6)
    assert trace.fan_out(str, [1, 2, 3], calls_each=2) == ["1", "2"]
    assert trace.counts["cut_by_budget"] == 1
    with pytest.raises(BudgetSpentError):
        trace.fan_out(str, [1], calls_each=6)


def test_fan_out_lengthens_the_critical_path_by_its_longest_item() -> None:
    def script(asked: Asked) -> Reply:
        return {"answer": "x"}

    lm, trace = ScriptedLM(script), new_trace(calls=20)
    predictor = predict(DirectAnswer)

    def item(times: int) -> None:
        for _ in range(times):
            trace.ask(predictor, question=f"{times}?")

    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger() as ledger:
        trace.fan_out(item, [1, 3, 2], calls_each=3)
    assert len(ledger.calls) == 6
    assert ledger.path.calls == 3


def test_prediction_has_the_passages_seen_or_the_ranking_given() -> None:
    trace = new_trace()
    found = trace.search("Harwick Eastmere", k=2)
    assert trace.prediction("x", "answered").passages == found
    assert trace.prediction("x", "answered", passages=found[1:]).passages == found[1:]


def test_render_numbers_passages_and_cuts_the_one_that_crosses_the_limit() -> None:
    passages = [Passage(str(n), "Title", "word " * 40) for n in range(3)]
    lines = render(passages, max_tokens=100)
    assert [line[:4] for line in lines] == ["[1] ", "[2] "]
    assert lines[1].endswith(" ...")
    assert sum(map(len, lines)) <= 400 + len(" ...")


def test_render_always_shows_the_first_passage() -> None:
    assert render([Passage("1", "Title", "word " * 400)], max_tokens=10) == [
        "[1] Title | word word word word word ..."
    ]
