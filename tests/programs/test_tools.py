"""A-RAG's tools and loop, and native tool calls at the wire of a server that speaks them."""

import json
from typing import Any, get_args

import dspy
import pytest

from ragbench.ledger import open_ledger
from ragbench.lms.factory import make_lm
from ragbench.passages import Corpus
from ragbench.programs.a_rag import ARAG, listed
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.tools import settled_backend
from ragbench.programs.react import ReActRAG
from ragbench.retrievers.factory import make_retriever
from ragbench.signatures import ANSWER_STYLES
from tests.fake_server import Calls
from tests.programs.shelf import TOWN, converse, ended, native, shelf

EVERY = ("keyword_search", "semantic_search", "chunk_read", "finish")
#: The tools that a variant leaves out.
VARIANTS = {
    "full": (), "naive": ("keyword_search", "chunk_read"), "no_keyword": ("keyword_search",),
    "no_semantic": ("semantic_search",), "no_read": ("chunk_read",),
}  # fmt: skip


def act(tool: str, *arguments: str, thought: str = "") -> dict[str, Any]:
    answer = ", ".join(arguments) if tool == "finish" else ""
    used = [] if tool == "finish" else list(arguments)
    return {"thought": thought, "answer": answer, "tool": tool, "arguments": used}


FINISH = act("finish", "Harwick", thought="Harwick it is.")


def typed(program: ARAG, *replies: Any, question: str = TOWN) -> tuple[Any, Any]:
    """Prediction and LM of a conversation of exactly these replies."""
    return converse(program, question, ToolStep=replies)[:2]


def test_a_search_a_reading_and_an_answer() -> None:
    prediction, lm = typed(
        ARAG(shelf()), act("keyword_search", "salt road", "orla"), act("chunk_read", "0"), FINISH
    )
    assert ended(prediction) == ("Harwick", "answered")
    assert [step.observation.split("\n")[-1] for step in prediction.steps] == [
        "Chunk 0 | Orla Venn: ... Orla Venn wrote the novel Salt Road ...",
        "Orla Venn wrote the novel Salt Road. She was born in Harwick.",
        "Harwick",
    ]
    # 9 letters of "salt road" and 4 of "orla", each once in both texts and once in one title.
    (search,) = prediction.searches
    assert search.hits == (("Salt Road", 22.0), ("Orla Venn", 17.0))
    assert "She was born in Harwick." in lm.asked[2].inputs["trajectory"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_offers_and_tells_of_its_own_tools_alone(variant: str) -> None:
    program, without = ARAG(shelf(), variant=variant), VARIANTS[variant]
    tool = program.act.signature.output_fields["tool"]
    assert get_args(tool.annotation) == tuple(name for name in EVERY if name not in without)
    _, lm = typed(program, FINISH)
    assert [name for name in without if name in lm.asked[0].prompt] == []
    assert ("Read a chunk whole" in lm.asked[0].prompt) is ("chunk_read" not in without)


@pytest.mark.parametrize(("variant", "embedded"), [("naive", 5 + 1), ("no_read", 9 + 1)])
def test_without_chunk_read_searches_show_whole_chunks(
    variant: str, embedded: int, embedder: Any
) -> None:
    program = ARAG(shelf(), variant=variant, k=1, embedder=variant)
    prediction, _ = typed(program, act("semantic_search", "Orla Venn wrote"), FINISH)
    whole = ": Orla Venn wrote the novel Salt Road. She was born in Harwick."
    assert prediction.steps[0].observation.endswith(whole)
    assert len(embedder.embedded) == embedded  # naive embeds chunks and no sentence


@pytest.mark.parametrize("reason", ["max_steps", "budget"])
def test_at_a_limit_the_same_conversation_answers_without_tools(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit: Any = {"max_steps": 1} if reason == "max_steps" else {}
    if not limit:
        monkeypatch.setattr("ragbench.programs.a_rag.TOKEN_BUDGET", 100)
    search = act("keyword_search", "is", thought="so " * 150)
    prediction, lm = typed(ARAG(shelf(), **limit), search, FINISH)
    assert ended(prediction) == ("Harwick", reason)
    last = lm.asked[1]
    assert last.inputs["tools"].startswith("[]")
    assert "Harwick is a town" in last.inputs["trajectory"]
    assert last.inputs["steps_left"][0] == "0"


def test_each_question_has_its_own_passages_in_the_distractor_setting() -> None:
    questions = {"Who?": (0, 1), "Where?": (3, 4)}
    corpus = Corpus(shelf().corpus.passages, contexts=questions)
    program = ARAG(make_retriever("bm25", corpus, setting="distractor"))
    program.prepare()  # nothing to share
    for question, places in questions.items():
        prediction, _ = typed(program, act("keyword_search", "a"), FINISH, question=question)
        found = {corpus.positions[pid] for pid, _ in prediction.searches[0].hits}
        assert found == set(places)


def test_prepare_embeds_the_corpus_so_that_no_question_does(embedder: Any) -> None:
    program = ARAG(shelf(), embedder="prepared")
    with open_ledger() as ledger:
        program.prepare()
        program.prepare()
    assert len(embedder.embedded) == 9
    assert [call.kind for call in ledger.calls] == ["embed"]
    typed(program, act("semantic_search", "born"), FINISH)
    assert len(embedder.embedded) == 10


def test_arguments_are_read_as_models_write_them() -> None:
    assert listed("a, b;c\n'd'", split=True) == ["a", "b", "c", "d"]
    assert listed('["New York, NY", "b"]', split=False) == ["New York, NY", "b"]
    assert listed("New York, NY", split=False) == ["New York, NY"]


# -- native


OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"


def keywords(*words: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "keyword_search", {"keywords": list(words), **more}


LOOK = Calls((keywords("Orla", top_k=1),), text="Who is it?")


def test_openai_sees_the_question_the_calls_and_their_results_and_nothing_else() -> None:
    program = ARAG(shelf())
    rules = program.act.signature.instructions
    program.act.signature = program.act.signature.with_instructions(f"Look twice. {rules}")
    read = Calls((("chunk_read", {"chunk_ids": ["3"]}),))
    prediction, bodies = native(program, [LOOK, read, "Harwick"])
    assert [step.action for step in prediction.steps] == ["keyword_search", "chunk_read", "answer"]
    assert prediction.steps[0].thought == "Who is it?"
    first, _, third = bodies
    named = {tool["function"]["name"]: tool["function"]["parameters"] for tool in first["tools"]}
    assert list(named) == list(EVERY[:3])
    assert named["keyword_search"]["required"] == ["keywords"]
    assert named["keyword_search"]["properties"]["top_k"]["maximum"] == 20
    assert (first["parallel_tool_calls"], "response_format" in first) == (False, False)
    roles = [message["role"] for message in third["messages"]]
    assert roles == ["system", "user", *["assistant", "tool"] * 2]
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
    prediction, bodies = native(ARAG(shelf()), [LOOK, "Harwick"], ANTHROPIC)
    assert prediction.answer == "Harwick"
    first, second = bodies
    assert [tool["name"] for tool in first["tools"]] == list(EVERY[:3])
    assert first["tools"][0]["input_schema"]["required"] == ["keywords"]
    assert first["tool_choice"]["disable_parallel_tool_use"] is True
    _, asked, shown = second["messages"]
    assert [block["type"] for block in asked["content"]] == ["text", "tool_use"]
    assert asked["content"][1]["input"] == {"keywords": ["Orla"], "top_k": 1}
    (result,) = shown["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", asked["content"][1]["id"])


def test_react_calls_its_tools_natively_and_a_blank_conclusion_goes_to_the_reader() -> None:
    search = Calls((("search", {"words": "Orla Venn"}),), text="I look.")
    turns = [search, Calls((("lookup", {"name": "born"}),)), " ", " ", '{"answer": "Harwick"}']
    prediction, bodies = native(ReActRAG(shelf(), max_steps=2), turns)
    assert ended(prediction) == ("Harwick", "max_steps")
    assert [t["function"]["name"] for t in bodies[0]["tools"]] == ["search", "lookup"]
    steps = [(step.action, step.thought) for step in prediction.steps]
    assert steps[:2] == [("search", "I look."), ("lookup", "")]
    assert "tools" not in bodies[-1]


@pytest.mark.parametrize("spec", [OPENAI, ANTHROPIC])
def test_at_the_limit_the_same_conversation_goes_on_without_tools(spec: str) -> None:
    turns = [Calls((keywords("Orla"),)), "Harwick"]
    prediction, bodies = native(ARAG(shelf(), max_steps=1), turns, spec)
    assert ended(prediction) == ("Harwick", "max_steps")
    last = bodies[-1]
    assert last["tool_choice"] in ("none", {"type": "none"})
    assert last["messages"][: len(bodies[0]["messages"])] == bodies[0]["messages"]
    assert "No tool is left" in str(last["messages"][-1]["content"])


@pytest.mark.parametrize(("parallel", "used"), [(False, 1), (True, 2)])
def test_one_tool_is_used_per_turn_unless_told_otherwise(parallel: bool, used: int) -> None:
    both = Calls((keywords("Orla"), keywords("Tam")))
    prediction, bodies = native(ARAG(shelf(), parallel_tools=parallel), [both, "Harwick"])
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
    prediction, (body,) = native(program(shelf(), backend="typed"), [typed])
    assert prediction.answer == "Harwick"
    assert "tools" not in body
    compiled = program(shelf())
    compiled.act.demos = [dspy.Example(question="?", tool="finish")]
    _, (body,) = native(compiled, [typed])
    assert "tools" not in body


def test_named_tool_calls_are_tried_with_an_lm_of_which_nothing_is_known() -> None:
    unknown = "openai/nobody-knows-this-model"
    prediction, bodies = native(ARAG(shelf(), backend="native"), [LOOK, "Harwick"], unknown)
    assert ended(prediction) == ("Harwick", "answered")
    assert all("tools" in body for body in bodies)
    lm = make_lm(unknown, api_base="http://127.0.0.1:9/v1")
    assert [settled_backend(name, lm) for name in ("auto", "native")] == ["typed", "native"]
    known = make_lm("openai/gpt-4o-mini", api_base="http://127.0.0.1:9/v1")
    assert settled_backend("auto", known) == "native"
    assert settled_backend("auto", known, demos=True) == "typed"
