"""MA-RAG's steps, notes and endings, by scripted conversations."""

from typing import Any

import pytest

from ragbench.programs.workflow.ma_rag import MARAG
from tests.programs.shelf import converse, shelf

QUESTION = "In which county was the author of Salt Road born?"
DUNMOOR = [{"answer": "Dunmoor"}]


def planned(*steps: str) -> dict[str, Any]:
    return {"reasoning": "First things first.", "steps": list(steps)}


def define(task: str, kind: str = "lookup") -> dict[str, Any]:
    return {"kind": kind, "task": task}


def answered(answer: str, *, success: bool = True, rating: int = 9) -> dict[str, Any]:
    return {"reasoning": "So.", "answer": answer, "success": success, "rating": rating}


def test_each_step_is_searched_noted_and_answered_and_all_but_the_first_defined() -> None:
    prediction, lm, ledger = converse(
        MARAG(shelf(), k=2),
        QUESTION,
        PlanSteps=[planned("Who wrote Salt Road?", "Find the county")],
        DefineStep=[define("Which county is Harwick in?")],
        TakeNotes=[{"notes": ["Orla Venn wrote it.", "Orla Venn wrote it."]}, {"notes": []}],
        AnswerTask=[answered("Orla Venn"), answered("Dunmoor", rating=7)],
        SynthesizeAnswer=DUNMOOR,
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert [s.query for s in prediction.searches] == [
        "Who wrote Salt Road?",
        "Which county is Harwick in?",
    ]
    defining = next(asked for asked in lm.asked if asked.signature == "DefineStep")
    assert "Who wrote Salt Road: Orla Venn" in defining.inputs["history"]
    task = next(asked for asked in lm.asked if asked.signature == "AnswerTask")
    assert task.inputs["notes"] == '["Orla Venn wrote it."]'
    assert "Which county is Harwick in: Dunmoor (rated 7 of 10)" in lm.asked[-1].inputs["notes"]
    assert len(ledger.calls) == 2 + 2 + 3


def test_planner_definer_and_look_ups_are_sampled_and_an_aggregate_sees_its_task_alone() -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[planned("How many live in Harwick?", "Compare")],
        DefineStep=[define("Is 900 more than 4,000?", "aggregate")],
        TakeNotes=[{"notes": ["It has 900 inhabitants."]}],
        AnswerTask=[answered("900"), answered("no")],
        SynthesizeAnswer=[{"answer": "no"}],
    )
    heat = [(asked.signature, asked.request.config.temperature) for asked in lm.asked]
    assert heat == [
        ("PlanSteps", 0.3),
        ("TakeNotes", 0.0),
        ("AnswerTask", 0.3),
        ("DefineStep", 0.3),
        ("AnswerTask", 0.0),
        ("SynthesizeAnswer", 0.0),
    ]
    assert len(prediction.searches) == 1
    assert lm.asked[-2].inputs["notes"] == "[]"


@pytest.mark.parametrize("bad", [answered("", success=False), answered("not stated")])
def test_the_notes_of_a_failed_step_reach_the_new_plan_and_the_summary(bad: Any) -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=1),
        QUESTION,
        PlanSteps=[planned("Who wrote Slat Road?"), planned("Find its county")],
        DefineStep=[define("Which county is Harwick in?")],
        TakeNotes=[{"notes": ["Orla Venn was born in Harwick."]}, {"notes": []}],
        AnswerTask=[bad, bad],
        SynthesizeAnswer=DUNMOOR,
    )
    failed = "Who wrote Slat Road: unknown; found: Orla Venn was born in Harwick."
    plans = [asked for asked in lm.asked if asked.signature == "PlanSteps"]
    assert failed in plans[1].inputs["history"]
    assert failed in lm.asked[-1].inputs["notes"]
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "no_progress")


def test_repeated_steps_are_dropped_and_no_plan_is_the_question() -> None:
    rest = {
        "TakeNotes": [{"notes": []}],
        "AnswerTask": [answered("Dunmoor")],
        "SynthesizeAnswer": DUNMOOR,
    }
    steps = [planned("Find Harwick", "find harwick.", " ")]
    prediction, _, _ = converse(MARAG(shelf(), k=1), QUESTION, PlanSteps=steps, **rest)
    assert prediction.plan == [{"id": "s1", "question": "Find Harwick"}]
    empty, _, _ = converse(MARAG(shelf(), k=1), QUESTION, PlanSteps=[planned()], **rest)
    assert empty.counts["bad_plan"] == 1
    assert [s.query for s in empty.searches] == [QUESTION]


def test_ablations_leave_out_planner_and_extractor_or_note_each_passage() -> None:
    rest = {"AnswerTask": [answered("Dunmoor")], "SynthesizeAnswer": DUNMOOR}
    off = MARAG(shelf(), k=2, planner=False, extract="off")
    prediction, lm, _ = converse(off, QUESTION, **rest)
    assert [s.query for s in prediction.searches] == [QUESTION]
    assert "[2] Salt Road" in lm.asked[0].inputs["notes"]
    failed = {**rest, "AnswerTask": [answered("", success=False)]}
    prediction, _, _ = converse(off, QUESTION, **failed)
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "no_progress")
    each = MARAG(shelf(), k=2, planner=False, extract="each")
    _, lm, _ = converse(each, QUESTION, TakeNotes=[{"notes": ["It."]}, {"notes": []}], **rest)
    assert lm.signatures.count("TakeNotes") == 2


def test_a_spent_budget_leaves_the_answer_to_what_was_found() -> None:
    prediction, lm, _ = converse(
        MARAG(shelf(), k=1, max_calls=4),
        QUESTION,
        PlanSteps=[planned("Who wrote Salt Road?", "Where was she born?")],
        TakeNotes=[{"notes": ["Orla Venn wrote it."]}],
        AnswerTask=[answered("Orla Venn")],
        SynthesizeAnswer=DUNMOOR,
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "budget")
    assert "Orla Venn" in lm.asked[-1].inputs["notes"]
