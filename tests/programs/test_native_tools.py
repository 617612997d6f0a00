"""Native tool calls of A-RAG and ReAct, at the wire of a server that speaks the protocol."""

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
from ragbench.programs.core import RAGProgram
from ragbench.programs.react import ReActRAG
from ragbench.signatures import ANSWER_STYLES
from tests.fake_server import Calls, FakeServer
from tests.fakes import ScriptedLM
from tests.programs.shelf import TOWN, ask, ended, shelf


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{provider}_API_KEY", "none")


OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"
Bodies = list[dict[str, Any]]


def talk(
    program: RAGProgram, replies: Sequence[str | Calls], lm_spec: str = OPENAI
) -> tuple[Any, Bodies]:
    """The prediction over these replies, and the requests that the server saw."""
    left = list(replies)
    with FakeServer(lambda hit: left.pop(0)) as server:
        lm = make_lm(lm_spec, api_base=server.url, cache=False)
        with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
            prediction = program(question=TOWN)
        lm.close()
        assert left == []
        return prediction, [hit.body for hit in server.hits]


def keywords(*words: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "keyword_search", {"keywords": list(words), **more}


LOOK = Calls((keywords("Orla", top_k=1),), text="Who is it?")


def test_openai_sees_the_question_the_calls_and_their_results_and_nothing_else() -> None:
    program = ARAG(shelf())
    rules = program.act.signature.instructions
    program.act.signature = program.act.signature.with_instructions(f"Look twice. {rules}")
    read = Calls((("chunk_read", {"chunk_ids": ["3"]}),))
    prediction, bodies = talk(program, [LOOK, read, "Harwick"])
    assert ended(prediction) == ("Harwick", "answered")
    assert [step.action for step in prediction.steps] == ["keyword_search", "chunk_read", "answer"]
    assert prediction.steps[0].thought == "Who is it?"
    first, _, third = bodies
    named = {tool["function"]["name"]: tool["function"]["parameters"] for tool in first["tools"]}
    assert list(named) == ["keyword_search", "semantic_search", "chunk_read"]
    assert named["keyword_search"]["required"] == ["keywords"]
    assert named["keyword_search"]["properties"]["keywords"]["type"] == "array"
    assert named["keyword_search"]["properties"]["top_k"]["maximum"] == 20
    assert list(named["chunk_read"]["properties"]) == ["chunk_ids"]
    assert (first["parallel_tool_calls"], "response_format" in first) == (False, False)
    roles = [message["role"] for message in third["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    system, question, asked, shown, again, whole = third["messages"]
    assert system["content"].startswith("Look twice.")  # instructions as they were compiled
    assert "[[" not in system["content"]
    assert ANSWER_STYLES["brief"] in system["content"]
    assert (question["content"], asked["content"]) == (TOWN, "Who is it?")
    (call,) = asked["tool_calls"]
    assert call["function"]["name"] == "keyword_search"
    assert json.loads(call["function"]["arguments"]) == {"keywords": ["Orla"], "top_k": 1}
    assert shown["tool_call_id"] == call["id"] != again["tool_calls"][0]["id"]
    assert shown["content"].startswith("Chunk 0 | Orla Venn: ")
    assert "900 inhabitants" in whole["content"]


def test_anthropic_sees_the_same_in_its_own_blocks() -> None:
    prediction, bodies = talk(ARAG(shelf()), [LOOK, "Harwick"], ANTHROPIC)
    assert prediction.answer == "Harwick"
    first, second = bodies
    names = [tool["name"] for tool in first["tools"]]
    assert names == ["keyword_search", "semantic_search", "chunk_read"]
    assert first["tools"][0]["input_schema"]["required"] == ["keywords"]
    assert first["tool_choice"]["disable_parallel_tool_use"] is True
    _, asked, shown = second["messages"]
    assert [block["type"] for block in asked["content"]] == ["text", "tool_use"]
    assert asked["content"][1]["input"] == {"keywords": ["Orla"], "top_k": 1}
    (result,) = shown["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", asked["content"][1]["id"])


def test_react_calls_its_tools_natively_and_a_blank_conclusion_goes_to_the_reader() -> None:
    search = Calls((("search", {"words": "Orla Venn"}),), text="I look.")
    turns = [search, Calls((("lookup", {"name": "born"}),)), " ", '{"answer": "Harwick"}']
    prediction, bodies = talk(ReActRAG(shelf(), max_steps=2), turns)
    assert ended(prediction) == ("Harwick", "max_steps")
    assert [t["function"]["name"] for t in bodies[0]["tools"]] == ["search", "lookup"]
    steps = [(step.action, step.thought) for step in prediction.steps]
    assert steps[:2] == [("search", "I look."), ("lookup", "")]
    assert "tools" not in bodies[-1]


@pytest.mark.parametrize("spec", [OPENAI, ANTHROPIC])
def test_at_the_limit_the_same_conversation_goes_on_without_tools(spec: str) -> None:
    prediction, bodies = talk(
        ARAG(shelf(), max_steps=1), [Calls((keywords("Orla"),)), "Harwick"], spec
    )
    assert ended(prediction) == ("Harwick", "max_steps")
    last = bodies[-1]
    assert last["tool_choice"] in ("none", {"type": "none"})
    assert last["messages"][: len(bodies[0]["messages"])] == bodies[0]["messages"]
    assert "No tool is left" in str(last["messages"][-1]["content"])


@pytest.mark.parametrize(("parallel", "used"), [(False, 1), (True, 2)])
def test_one_tool_is_used_per_turn_unless_told_otherwise(parallel: bool, used: int) -> None:
    both = Calls((keywords("Orla"), keywords("Tam")))
    prediction, bodies = talk(ARAG(shelf(), parallel_tools=parallel), [both, "Harwick"])
    assert len(prediction.searches) == used
    messages = bodies[1]["messages"]
    assert sum(m["role"] == "tool" for m in messages) == used
    assert sum(m["role"] == "assistant" for m in messages) == 1
    assert bodies[0]["parallel_tool_calls"] is parallel


@pytest.mark.parametrize("program", [ARAG, ReActRAG])
def test_typed_turns_are_asked_for_on_request_and_where_there_are_demonstrations(
    program: type[RAGProgram],
) -> None:
    given: Any = {"arguments": []} if program is ARAG else {"argument": ""}
    typed = json.dumps({"thought": "x", "answer": "Harwick", "tool": "finish", **given})
    prediction, (body,) = talk(program(shelf(), backend="typed"), [typed])
    assert prediction.answer == "Harwick"
    assert "tools" not in body
    compiled = program(shelf())
    compiled.act.demos = [dspy.Example(question="?", tool="finish")]
    _, (body,) = talk(compiled, [typed])
    assert "tools" not in body


@pytest.mark.parametrize("program", [ARAG, ReActRAG])
def test_an_lm_without_tool_calls_is_refused_in_one_line(program: type[RAGProgram]) -> None:
    native = program(shelf(), backend="native")
    with pytest.raises(ConfigError, match="cannot; use backend=typed") as error:
        native.check_lms(ScriptedLM(), {})
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError):
        ask(native, lambda asked: {})
