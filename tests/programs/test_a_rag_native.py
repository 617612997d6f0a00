"""A-RAG by native tool calls, over a server that speaks the chat protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import dspy
import pytest

from ragbench.errors import ConfigError
from ragbench.ledger import open_ledger
from ragbench.lms import make_lm
from ragbench.lms.adapters import make_adapter
from ragbench.programs.a_rag import ARAG
from tests.fake_server import Calls, FakeServer
from tests.fakes import ScriptedLM
from tests.programs.shelf import ask, shelf

QUESTION = "Where was the author of Salt Road born?"


def talk(replies: Sequence[str | Calls], **knobs: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The prediction over these replies, and the requests that the server saw."""
    left = list(replies)
    with FakeServer(lambda hit: left.pop(0)) as server:
        lm = make_lm("openai/gpt-4o-mini", api_base=server.url, cache=False)
        with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
            prediction = ARAG(shelf(), backend="native", **knobs)(question=QUESTION)
        lm.close()
        assert left == []
        return prediction, [hit.body for hit in server.hits]


def keywords(*words: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "keyword_search", {"keywords": list(words), **more}


def test_tools_go_by_the_protocol_and_a_turn_without_a_call_is_the_answer() -> None:
    prediction, bodies = talk(
        [
            Calls((keywords("Orla", top_k=1),), text="Who is it?"),
            Calls((("chunk_read", {"chunk_ids": ["0"]}),)),
            "Harwick",
        ]
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    first, second, third = bodies
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert names == ["keyword_search", "semantic_search", "chunk_read"]
    schema = first["tools"][0]["function"]["parameters"]
    assert schema["required"] == ["keywords"]
    assert schema["properties"]["top_k"]["maximum"] == 20
    assert "tools" not in first["messages"][-1]["content"].lower().replace("call tools", "")
    call = next(m for m in second["messages"] if m.get("tool_calls"))
    shown = next(m for m in second["messages"] if m["role"] == "tool")
    function = call["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"keywords": ["Orla"], "top_k": 1}
    assert shown["tool_call_id"] == call["tool_calls"][0]["id"]
    assert shown["content"].startswith("Chunk 0 | Orla Venn: ")
    assert sum(m["role"] == "tool" for m in third["messages"]) == 2
    assert [len(search.hits) for search in prediction.searches] == [1]
    assert [step.action for step in prediction.steps] == ["keyword_search", "chunk_read", "answer"]


@pytest.mark.parametrize(("parallel", "used"), [(False, 1), (True, 2)])
def test_one_tool_is_used_per_turn_unless_told_otherwise(parallel: bool, used: int) -> None:
    both = Calls((keywords("Orla"), keywords("Tam")))
    prediction, bodies = talk([both, "Harwick"], parallel_tools=parallel)
    assert len(prediction.searches) == used
    assert sum(m["role"] == "tool" for m in bodies[1]["messages"]) == used


def test_answers_are_read_with_or_without_the_marks() -> None:
    marked = "[[ ## answer ## ]]\nHarwick\n\n[[ ## completed ## ]]"
    found = [Calls((keywords("Orla"),))]
    assert talk([*found, marked])[0].answer == "Harwick"
    assert talk([*found, "Harwick"])[0].answer == "Harwick"


def test_an_answer_before_any_search_is_asked_for_again_after_one() -> None:
    prediction, bodies = talk(["Oslo", "Harwick"])
    assert (prediction.answer, prediction.counts["unsearched_answer"]) == ("Harwick", 1)
    assert "Salt Road" in str(bodies[1]["messages"][-1])


def test_the_step_limit_forces_an_answer_without_tools() -> None:
    prediction, bodies = talk([Calls((keywords("Orla"),)), '{"answer": "Harwick"}'], max_steps=1)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "max_steps")
    assert "tools" not in bodies[-1]


def test_an_lm_without_tool_calls_is_refused_in_one_line() -> None:
    program = ARAG(shelf(), backend="native")
    lm = ScriptedLM()
    with pytest.raises(ConfigError, match="cannot; use backend=typed") as error:
        program.check_lms(lm, {})
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError):
        ask(program, lambda asked: {})
