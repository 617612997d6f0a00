"""RA-ISF's three ways to an answer and its recursion, by scripted conversations."""

from __future__ import annotations

from typing import Any

from ragbench.programs.workflow.ra_isf import RAISF
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"
SEARCH, MEMORY = {"retrieve": True, "confidence": 1.0}, {"retrieve": False, "confidence": 1.0}


def marks(*relevant: bool) -> list[dict[str, Any]]:
    return [
        {"relevance": "relevant" if one else "irrelevant", "confidence": 1.0} for one in relevant
    ]


def test_what_is_known_is_answered_from_memory() -> None:
    prediction, _, _ = converse(
        RAISF(shelf()),
        QUESTION,
        RetrievalDecision=[MEMORY],
        DirectAnswer=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "direct")
    assert prediction.searches == []


def test_relevant_passages_alone_are_read() -> None:
    prediction, lm, ledger = converse(
        RAISF(shelf(), k=2),
        QUESTION,
        RetrievalDecision=[SEARCH],
        IsRel=marks(True, False),
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert "[2]" not in lm.asked[-1].inputs["context"]
    assert len(ledger.calls) == 4
    assert ledger.path.calls == 3


def test_all_passages_can_be_judged_in_one_call() -> None:
    _, lm, _ = converse(
        RAISF(shelf(), k=2, batch_relevance=True),
        QUESTION,
        RetrievalDecision=[SEARCH],
        SelectItems=[{"keep": [2, 9]}],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert "Salt Road | " in lm.asked[-1].inputs["context"]
    assert "[2]" not in lm.asked[-1].inputs["context"]


def test_without_a_relevant_passage_the_parts_are_solved_and_combined() -> None:
    prediction, lm, _ = converse(
        RAISF(shelf(), k=1),
        QUESTION,
        RetrievalDecision=[SEARCH, MEMORY, SEARCH],
        IsRel=marks(False, True),
        SplitQuestion=[
            {"sub_questions": ["Who wrote Salt Road?", "Where was {1} born?", "And a third?"]}
        ],
        DirectAnswer=[{"answer": "Orla Venn"}],
        AnswerFromContext=[{"answer": "Harwick"}],
        SynthesizeAnswer=[{"answer": "Harwick"}],
    )
    assert prediction.answer == "Harwick"
    assert [s.query for s in prediction.searches] == [QUESTION, "Where was Orla Venn born?"]
    notes = lm.asked[-1].inputs["notes"]
    assert "Who wrote Salt Road? Orla Venn" in notes


def test_the_depth_bounds_the_splits_and_what_stays_unknown_is_read_at_last() -> None:
    prediction, _, _ = converse(
        RAISF(shelf(), k=1, max_depth=1),
        QUESTION,
        RetrievalDecision=[SEARCH] * 3,
        IsRel=marks(False, False, False),
        SplitQuestion=[{"sub_questions": ["Who wrote Salt Road?", "Where is Harwick?"]}],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["nothing_answered"] == 1


def test_a_part_that_is_the_question_again_is_refused() -> None:
    prediction, _, _ = converse(
        RAISF(shelf(), k=1),
        QUESTION,
        RetrievalDecision=[SEARCH],
        IsRel=marks(False),
        SplitQuestion=[{"sub_questions": [QUESTION.lower()]}],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert prediction.counts["cycle_refused"] == 1


def test_without_the_gate_every_question_is_searched() -> None:
    _, _, ledger = converse(
        RAISF(shelf(), k=1, self_knowledge=False, max_depth=0),
        QUESTION,
        IsRel=marks(True),
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert len(ledger.calls) == 2
