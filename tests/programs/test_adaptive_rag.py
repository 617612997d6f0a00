"""Adaptive-RAG's choice between three programs, by scripted conversations."""

import pytest

from ragbench.programs import AdaptiveRAG
from tests.fakes import never_parses
from tests.programs.shelf import ask, converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def test_no_search_for_common_knowledge() -> None:
    prediction, _, ledger = converse(
        AdaptiveRAG(shelf()),
        QUESTION,
        QuestionComplexity=[{"effort": "none"}],
        DirectAnswer=[{"reasoning": "Known.", "answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "direct")
    assert prediction.searches == []
    assert len(ledger.calls) == 2


def test_one_search_for_one_fact() -> None:
    prediction, _, _ = converse(
        AdaptiveRAG(shelf(), k=2),
        QUESTION,
        QuestionComplexity=[{"effort": "single"}],
        AnswerFromContext=[{"reasoning": "So.", "answer": "Harwick"}],
    )
    assert [(s.query, s.k) for s in prediction.searches] == [(QUESTION, 2)]
    assert [step.action for step in prediction.steps] == ["route", "answer"]


def test_a_loop_for_several_facts() -> None:
    thought = {"thought": "Salt Road is by Orla Venn.", "next_step": "search", "answer": ""}
    done = {"thought": "She was born in Harwick.", "next_step": "answer", "answer": "Harwick"}
    prediction, _, _ = converse(
        AdaptiveRAG(shelf()),
        QUESTION,
        QuestionComplexity=[{"effort": "multi"}],
        CoTStep=[thought, done],
    )
    assert prediction.answer == "Harwick"
    assert [s.k for s in prediction.searches] == [3, 3]  # and no second reader


def test_an_unreadable_choice_takes_the_loop() -> None:
    prediction, _, _ = ask(AdaptiveRAG(shelf()), never_parses, QUESTION)
    assert prediction.steps[0].observation == "multi"


def test_a_budget_spent_in_the_loop_ends_in_its_forced_answer() -> None:
    thought = {"thought": "Salt Road is by Orla Venn.", "next_step": "search", "answer": ""}
    prediction, _, _ = converse(
        AdaptiveRAG(shelf(), max_calls=3),
        QUESTION,
        QuestionComplexity=[{"effort": "multi"}],
        CoTStep=[thought],
        AnswerWithHints=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "budget")


@pytest.mark.parametrize(
    ("route", "reader"), [("none", "DirectAnswer"), ("single", "AnswerFromContext")]
)
def test_a_fixed_way_asks_for_no_choice(route: str, reader: str) -> None:
    program = AdaptiveRAG(shelf(), route=route)
    reply = {"reasoning": "So.", "answer": "Harwick"}
    prediction, _, _ = converse(program, QUESTION, **{reader: [reply]})
    assert prediction.answer == "Harwick"
    assert len(program.predictors()) == 1
