"""ReAct's variant `dspy`, and the arguments of its tools."""

from __future__ import annotations

from typing import Any

import pytest

from ragbench.programs.core import argument_text
from ragbench.programs.react.program import ReActRAG
from tests.programs.react_turns import QUESTION
from tests.programs.shelf import converse, shelf


def turn(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"next_thought": "Hm.", "next_tool_name": tool, "next_tool_args": arguments}


def test_dspy_spends_one_more_call_on_the_answer() -> None:
    prediction, lm, ledger = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=[turn("search", query="Orla Venn"), turn("finish")],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(ledger.calls) == 3
    assert "She was born in Harwick" in lm.asked[1].prompt
    assert [step.action for step in prediction.steps] == ["search", "finish", "answer"]


def test_dspy_survives_replies_that_cannot_be_read() -> None:
    prediction, lm, _ = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=["?", "?"],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "parse_fallback")
    assert [search.query for search in prediction.searches] == [QUESTION]
    assert "Orla Venn wrote" in lm.asked[-1].prompt


def test_dspy_answers_from_the_passages_where_the_extraction_fails() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=[turn("finish")],
        DirectAnswer=["?"],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert prediction.answer == "Harwick"


def test_dspy_is_told_when_no_search_is_left() -> None:
    prediction, _, _ = converse(
        ReActRAG(shelf(), variant="dspy", max_retrievals=0),
        QUESTION,
        ReActStep=[turn("search", query="Orla Venn"), turn("finish")],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert prediction.steps[0].observation == "No search is left. Use finish."


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"words": "a", "k": 3}, "a"),
        ({"k": 3, "words": "a"}, "a"),
        ({"query": " a  b "}, "a b"),
        ({"words": ""}, ""),
        ({"words": None, "query": "a"}, "a"),
        ({"words": ["a", "b"]}, "a b"),
        ({"words": {"text": "a"}}, "a"),
        ({"words": 1912}, "1912"),
        ({"words": [None, True, {}]}, ""),
        ({}, ""),
        (None, ""),
        ("a", "a"),
    ],
)
def test_the_one_text_among_a_models_arguments(arguments: Any, text: str) -> None:
    assert argument_text(arguments, "words") == text


@pytest.mark.parametrize(
    ("arguments", "query", "mended"),
    [
        ({"words": "Orla Venn"}, "Orla Venn", 0),
        ({"query": "Orla Venn"}, "Orla Venn", 1),
        ({"words": ["Orla", "Venn"]}, "Orla Venn", 1),
        ({"words": "Orla Venn", "k": 3}, "Orla Venn", 1),
        ({"self": "Orla Venn"}, "Orla Venn", 1),
        ({"words": {"": []}}, None, 1),
        ({}, None, 1),
    ],
)
def test_dspy_mends_and_counts_the_arguments_of_a_tool(
    arguments: dict[str, Any], query: str | None, mended: int
) -> None:
    search = {"next_thought": "Hm.", "next_tool_name": "search", "next_tool_args": arguments}
    prediction, lm, _ = converse(
        ReActRAG(shelf(), variant="dspy"),
        QUESTION,
        ReActStep=[search, turn("finish", answer="Harwick")],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert [search.query for search in prediction.searches] == ([query] if query else [])
    assert prediction.counts["argument_repair"] == mended + 1  # finish takes none
    assert "Execution error" not in lm.asked[-1].prompt
    if query is None:
        assert prediction.steps[0].observation == "search needs the argument words."


def test_dspy_does_not_hide_an_error_of_the_retriever() -> None:
    class Broken(type(shelf())):  # type: ignore[misc]
        def search_many(self, queries: Any, *, k: int) -> Any:
            raise ValueError("the index is gone")

    with pytest.raises(ValueError, match="the index is gone"):
        converse(
            ReActRAG(Broken(shelf().corpus), variant="dspy"),
            QUESTION,
            ReActStep=[turn("search", words="Orla Venn")],
        )
