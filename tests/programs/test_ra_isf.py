"""RA-ISF's three ways to an answer and its recursion, by scripted conversations."""

from typing import Any

from ragbench.programs.workflow.ra_isf import RAISF
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"
SEARCH, MEMORY = {"retrieve": True, "confidence": 1.0}, {"retrieve": False, "confidence": 1.0}
PARTS = {"sub_questions": ["Who wrote Salt Road?", "Where was {1} born?", "And a third?"]}
HARWICK, NOTHING = {"answer": "Harwick"}, {"answer": ""}


def marks(*relevant: bool) -> list[dict[str, Any]]:
    return [
        {"relevance": "relevant" if one else "irrelevant", "confidence": 1.0} for one in relevant
    ]


def test_what_is_known_is_answered_from_memory() -> None:
    prediction, _, _ = converse(
        RAISF(shelf()), QUESTION, RetrievalDecision=[MEMORY], DirectAnswer=[HARWICK]
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "direct")
    assert prediction.searches == []


def test_relevant_passages_alone_are_read() -> None:
    prediction, lm, ledger = converse(
        RAISF(shelf(), k=2),
        QUESTION,
        RetrievalDecision=[SEARCH],
        IsRel=marks(True, False),
        AnswerIfStated=[HARWICK],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert "[2]" not in lm.asked[-1].inputs["context"]
    assert (len(ledger.calls), ledger.path.calls) == (4, 3)


def test_all_passages_can_be_judged_in_one_call() -> None:
    _, lm, _ = converse(
        RAISF(shelf(), k=2, batch_relevance=True),
        QUESTION,
        RetrievalDecision=[SEARCH],
        SelectItems=[{"keep": [2, 9]}],
        AnswerIfStated=[HARWICK],
    )
    assert "Salt Road | " in lm.asked[-1].inputs["context"]
    assert "[2]" not in lm.asked[-1].inputs["context"]


def test_passages_that_do_not_state_the_answer_leave_it_to_the_parts() -> None:
    prediction, lm, _ = converse(
        RAISF(shelf(), k=1),
        QUESTION,
        RetrievalDecision=[SEARCH, MEMORY, SEARCH],
        IsRel=marks(True, True),
        SplitQuestion=[PARTS],
        DirectAnswer=[{"answer": "Orla Venn"}],
        AnswerIfStated=[NOTHING, HARWICK],
        CombineAnswers=[HARWICK],
    )
    assert prediction.answer == "Harwick"
    assert [s.query for s in prediction.searches] == [QUESTION, "Where was Orla Venn born?"]
    notes = lm.asked[-1].inputs["notes"]  # each part as it was asked
    assert "Who wrote Salt Road? Orla Venn" in notes
    assert "Where was Orla Venn born? Harwick" in notes


def test_the_depth_bounds_the_splits_and_what_stays_unknown_is_read_at_last() -> None:
    prediction, _, _ = converse(
        RAISF(shelf(), k=1, max_depth=1),
        QUESTION,
        RetrievalDecision=[SEARCH] * 3,
        IsRel=marks(False, False, False),
        SplitQuestion=[{"sub_questions": ["Who wrote Salt Road?", "Where is Harwick?"]}],
        AnswerFromContext=[HARWICK],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")
    assert prediction.counts["nothing_answered"] == 1


def test_a_part_that_is_the_question_again_is_refused() -> None:
    prediction, _, _ = converse(
        RAISF(shelf(), k=1, self_knowledge=False),
        QUESTION,
        IsRel=marks(False),
        SplitQuestion=[{"sub_questions": [QUESTION.lower()]}],
        AnswerFromContext=[HARWICK],
    )
    assert prediction.counts["cycle_refused"] == 1
