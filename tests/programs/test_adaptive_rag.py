"""Adaptive-RAG's choice between three programs, by scripted conversations."""

from typing import Any

import pytest

from ragbench.programs import AdaptiveRAG
from tests.fakes import never_parses
from tests.programs.shelf import ask, converse, shelf

QUESTION = "Where was the author of Salt Road born?"
HARWICK = [{"reasoning": "So.", "answer": "Harwick"}]
THOUGHT = {"thought": "Salt Road is by Orla Venn.", "next_step": "search", "answer": ""}
DONE = {"thought": "She was born in Harwick.", "next_step": "answer", "answer": "Harwick"}


@pytest.mark.parametrize(
    ("effort", "replies", "stop", "searches"),
    [
        ("none", {"DirectAnswer": HARWICK}, "direct", []),
        ("single", {"AnswerFromContext": HARWICK}, "answered", [6]),
        ("multi", {"CoTStep": [THOUGHT, DONE]}, "answered", [3, 3]),  # and no second reader
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_the_effort_decides_the_searches(
    effort: str, replies: Any, stop: str, searches: list[int], asked: bool
) -> None:
    program = AdaptiveRAG(shelf(), **({} if asked else {"route": effort}))
    choice = {"QuestionComplexity": [{"effort": effort}]} if asked else {}
    prediction, _, _ = converse(program, QUESTION, **choice, **replies)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", stop)
    assert [s.k for s in prediction.searches] == searches


def test_the_published_numbers_of_passages() -> None:
    ways = [AdaptiveRAG(shelf(), variant=variant).knobs for variant in ("gpt", "flan")]
    assert [(knobs.k, knobs.loop_k) for knobs in ways] == [(6, 3), (15, 6)]


def test_an_unreadable_choice_takes_the_loop() -> None:
    prediction, _, _ = ask(AdaptiveRAG(shelf()), never_parses, QUESTION)
    assert prediction.steps[0].observation == "multi"


def test_a_budget_spent_in_the_loop_ends_in_its_forced_answer() -> None:
    prediction, _, _ = converse(
        AdaptiveRAG(shelf(), max_calls=3),
        QUESTION,
        QuestionComplexity=[{"effort": "multi"}],
        CoTStep=[THOUGHT],
        AnswerWithHints=HARWICK,
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "budget")
