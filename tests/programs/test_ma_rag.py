"""MA-RAG's steps, notes and endings, by scripted conversations."""

from __future__ import annotations

from typing import Any

import pytest

from ragbench.programs.workflow.ma_rag import MARAG
from tests.programs.shelf import converse, shelf

QUESTION = "In which county was the author of Salt Road born?"


def define(task: str, kind: str = "lookup") -> dict[str, Any]:
    return {"kind": kind, "task": task}


def answered(answer: str, *, success: bool = True, rating: int = 9) -> dict[str, Any]:
    return {"answer": answer, "success": success, "rating": rating}


def test_each_step_is_defined_searched_noted_and_answered() -> None:
    prediction, lm, ledger = converse(
        MARAG(shelf(), k=2),
        QUESTION,
        PlanSteps=[{"steps": ["Find the author of Salt Road", "Find the county"]}],
        DefineStep=[define("Who wrote Salt Road?"), define("Which county is Harwick in?")],
        TakeNotes=[{"notes": ["Orla Venn wrote it."]}, {"notes": []}] * 2,
        AnswerTask=[answered("Orla Venn"), answered("Dunmoor", rating=7)],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert [s.query for s in prediction.searches] == [
        "Who wrote Salt Road?",
        "Which county is Harwick in?",
    ]
    second = [asked for asked in lm.asked if asked.signature == "DefineStep"][1]
    assert "Find the author of Salt Road: Orla Venn" in second.inputs["history"]
    task = next(asked for asked in lm.asked if asked.signature == "AnswerTask")
    assert "Orla Venn wrote it." in task.inputs["notes"]
    assert "Which county is Harwick in: Dunmoor (rated 7 of 10)" in lm.asked[-1].inputs["notes"]
    assert len(ledger.calls) == 2 + 2 * (2 + 2)


def test_planner_definer_and_look_ups_are_sampled_and_the_rest_is_not() -> None:
    _, lm, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[{"steps": ["Find the author", "Combine"]}],
        DefineStep=[define("Who wrote Salt Road?"), define("Which is it?", "aggregate")],
        TakeNotes=[{"notes": ["Orla Venn wrote it."]}],
        AnswerTask=[answered("Orla Venn"), answered("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    heat = [(asked.signature, asked.request.config.temperature) for asked in lm.asked]
    assert heat == [
        ("PlanSteps", 0.3),
        ("DefineStep", 0.3),
        ("TakeNotes", 0.0),
        ("AnswerTask", 0.3),
        ("DefineStep", 0.3),
        ("AnswerTask", 0.0),
        ("SynthesizeAnswer", 0.0),
    ]


def test_an_aggregate_searches_nothing_and_sees_its_task_alone() -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[{"steps": ["Find the inhabitants", "Compare"]}],
        DefineStep=[
            define("How many live in Harwick?"),
            define("Is 900 more than 4,000?", "aggregate"),
        ],
        TakeNotes=[{"notes": ["It has 900 inhabitants."]}],
        AnswerTask=[answered("900"), answered("no")],
        SynthesizeAnswer=[{"answer": "no"}],
    )
    assert len(prediction.searches) == 1
    aggregate = [asked for asked in lm.asked if asked.signature == "AnswerTask"][1]
    assert aggregate.inputs["notes"] == "[]"


@pytest.mark.parametrize("bad", [answered("", success=False), answered("not stated")])
def test_the_first_failed_step_ends_the_plan_and_is_summarized(bad: dict[str, Any]) -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[{"steps": ["Find the author", "Find the county"]}],
        DefineStep=[define("Who wrote Salt Road?")],
        TakeNotes=[{"notes": []}],
        AnswerTask=[bad],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "no_progress")
    assert "Who wrote Salt Road: " in lm.asked[-1].inputs["notes"]


def test_a_new_plan_is_told_what_failed() -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=1, max_replans=1),
        QUESTION,
        PlanSteps=[{"steps": ["Find the author"]}, {"steps": ["Find the county of Harwick"]}],
        DefineStep=[define("Who wrote Slat Road?"), define("Which county is Harwick in?")],
        TakeNotes=[{"notes": []}, {"notes": ["Harwick is in Dunmoor."]}],
        AnswerTask=[answered("", success=False), answered("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    plans = [asked for asked in lm.asked if asked.signature == "PlanSteps"]
    assert "Who wrote Slat Road: unknown" in plans[1].inputs["failed"]
    assert prediction.stop_reason == "answered"


def test_repeated_steps_are_dropped_and_no_plan_is_the_question() -> None:
    prediction, _, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[{"steps": ["Find Harwick", "find harwick.", " "]}],
        DefineStep=[define("")],
        TakeNotes=[{"notes": []}],
        AnswerTask=[answered("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert prediction.plan == [{"id": "s1", "question": "Find Harwick"}]
    assert [s.query for s in prediction.searches] == ["Find Harwick"]
    empty, _, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[{"steps": []}],
        DefineStep=[define("")],
        TakeNotes=[{"notes": []}],
        AnswerTask=[answered("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert empty.counts["bad_plan"] == 1
    assert [s.query for s in empty.searches] == [QUESTION]


def test_ablations_leave_out_planner_and_extractor() -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=2, planner=False, extract="off"),
        QUESTION,
        AnswerTask=[answered("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert [s.query for s in prediction.searches] == [QUESTION]
    assert "[2] Salt Road" in lm.asked[0].inputs["notes"]


def test_notes_of_all_passages_in_one_call() -> None:
    _, lm, _ = converse(
        MARAG(shelf(), k=3, planner=False, extract="batch"),
        QUESTION,
        TakeNotes=[{"notes": ["It is in Dunmoor.", "It is in Dunmoor.", "not stated"]}],
        AnswerTask=[answered("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert lm.asked[1].inputs["notes"] == '["It is in Dunmoor."]'
