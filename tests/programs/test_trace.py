"""The state of one question: budget, searches, fallbacks, fan-out, rendering."""

import threading
from typing import cast

import dspy
import pytest
from dspy import lm15

from ragbench.lms.adapters.lenient import make_adapter
from ragbench.programs.core.program import predict
from ragbench.programs.core.prompts import render
from ragbench.programs.core.trace import (
    MAX_QUERY_CHARS,
    MAX_STEP_CHARS,
    MAX_STEPS,
    Budget,
    BudgetSpentError,
    Trace,
)
from ragbench.retrievers.base import Passage
from ragbench.signatures.answering import AnswerFromContext
from tests.fakes import Asked, Reply, ScriptedLM
from tests.programs.shelf import shelf


def new_trace(*, calls: int = 10, searches: int = 10) -> Trace:
    return Trace("Who wrote Salt Road?", shelf(), Budget(calls, searches))


def test_a_repeated_search_costs_nothing_and_is_noted_as_cached() -> None:
    trace = new_trace(searches=1)
    first = trace.search("Salt Road", k=2)
    assert trace.search("Salt Road", k=2) == first
    assert [search.cached for search in trace.searches] == [False, True]
    assert trace.budget.retrievals == 1
    with pytest.raises(BudgetSpentError):
        trace.search("Salt Road", k=3)


def test_a_query_of_any_length_is_cut() -> None:
    trace = new_trace()
    trace.search("Salt Road " * 10_000, k=1)
    assert len(trace.searches[0].query) == MAX_QUERY_CHARS
    assert trace.passages[0].pid == "Salt Road"


# -- prompts that the LM refuses as too long


def refusing(most: int, *, told: str = "prompt too long") -> ScriptedLM:
    """An LM whose window holds the fixed part of a prompt and `most` characters of inputs."""

    def script(asked: Asked) -> Reply:
        if sum(map(len, asked.inputs.values())) > most:
            return cast(Exception, lm15.ContextLengthError(told, status=400))
        return {"answer": "x"}

    return ScriptedLM(script)


LONG = [f"[{n}] Title {n} | {'word ' * 100}".strip() for n in range(1, 9)]


def read(lm: ScriptedLM, trace: Trace, *, last: bool = False) -> str:
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        return trace.answer(
            predict(AnswerFromContext), last=last, context=LONG, question=trace.question
        )


def test_what_could_be_read_of_a_reply_is_kept() -> None:
    lm = ScriptedLM(lambda asked: {"answer": "Harwick", "confidence": "high", "label": "rather"})
    trace = new_trace()
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        reply = trace.ask(
            dspy.Predict("question -> answer, confidence: float, label: bool"),
            otherwise={"answer": "", "confidence": 0.0, "label": False},
            question="Where?",
        )
    assert (reply.answer, reply.confidence, reply.label) == ("Harwick", 0.0, False)
    assert not reply.get("parse_fallback")
    assert trace.counts == {"partial_reply": 1}


def test_fields_of_both_replies_are_kept_where_a_chat_reply_is_asked_for_again() -> None:
    replies = iter([{"answer": "Harwick", "sure": "so so"}, {"sure": True}])
    lm = ScriptedLM(lambda asked: next(replies))
    trace = new_trace()
    with dspy.context(lm=lm, adapter=make_adapter("chat", lm)):
        reply = trace.ask(dspy.Predict("question -> answer, sure: bool"), question="Where?")
    assert (reply.answer, reply.sure) == ("Harwick", True)
    assert trace.counts == {"adapter_fallback": 1}


def test_the_text_of_steps_is_bounded() -> None:
    trace = new_trace()
    for _ in range(3):
        trace.step("read", input="x" * (MAX_STEP_CHARS // 2), observation="short")
    assert sum(len(step.input) for step in trace.steps) < MAX_STEP_CHARS
    for _ in range(MAX_STEPS):
        trace.step("read")
    assert len(trace.steps) == MAX_STEPS
    assert trace.counts["step_cut"] == 5


def test_a_prompt_that_is_refused_is_cut_and_costs_one_call_of_the_budget() -> None:
    lm, trace = refusing(1000), new_trace(calls=3)
    assert read(lm, trace) == "x"
    assert trace.budget.calls == 1
    assert trace.counts == {"context_cut": 3}  # an eighth of 4,096 characters
    shown = lm.asked[-1].inputs["context"]
    assert "Title 1" in shown
    assert "Title 2" not in shown
    assert lm.asked[-1].inputs["question"].startswith(trace.question)


def test_the_cut_follows_the_numbers_that_the_lm_names() -> None:
    told = "maximum context length is 4,000 tokens, but your messages have 4,250 tokens"
    lm, trace = refusing(3500, told=told), new_trace()
    lm.kwargs["max_tokens"] = 1
    assert read(lm, trace) == "x"
    assert trace.counts == {"context_cut": 1}
    assert "Title 5" in lm.asked[-1].inputs["context"]  # 1,250 characters less, not half of all


def test_what_cannot_be_cut_enough_takes_the_default_and_is_counted() -> None:
    trace = new_trace()
    assert read(refusing(10), trace) == ""
    assert trace.counts["context_overflow"] == 1
    assert trace.counts["parse_fallback"] == 0
    assert trace.budget.calls == 0


def test_a_last_call_that_cannot_be_cut_enough_is_the_providers_error() -> None:
    with pytest.raises(dspy.ContextWindowExceededError):
        read(refusing(10), new_trace(), last=True)


def test_an_answer_notes_what_the_reader_was_shown() -> None:
    trace, lm = new_trace(), ScriptedLM(lambda asked: {"answer": "x"})
    found = trace.search("Salt Road novel", k=2)
    context = [*render(found, max_tokens=100), "[3] No passage | at all"]
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        trace.answer(predict(AnswerFromContext), context=context, question="Who?")
    assert trace.steps[-1].input == "Who?"
    assert trace.steps[-1].pids == tuple(passage.pid for passage in found)
    assert trace.steps[-1].notes == {"context": ["[3] No passage | at all"]}


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


def test_render_numbers_passages_and_cuts_the_one_that_crosses_the_limit() -> None:
    passages = [Passage(str(n), "Title", "word " * 40) for n in range(3)]
    lines = render(passages, max_tokens=100)
    assert [line[:4] for line in lines] == ["[1] ", "[2] "]
    assert lines[1].endswith(" ...")
    assert sum(map(len, lines)) <= 400 + len(" ...")
    assert len(render(passages, max_tokens=10)) == 1
