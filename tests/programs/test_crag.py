"""CRAG's grades, actions, strips and second search, by scripted conversations."""

from typing import Any

import dspy
import pytest

from ragbench.errors import KnobError
from ragbench.programs.workflow.crag import CRAG, strips_of
from ragbench.record import Ledger
from ragbench.retrievers.base import Corpus, Passage
from ragbench.retrievers.factory import make_retriever
from tests.fakes import ScriptedLM
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def graded(grade: str, confidence: float = 1.0) -> dict[str, Any]:
    return {"grade": grade, "confidence": confidence}


def corrected(
    grades: list[Any], *, strips: list[Any] | None = None, query: str = "", **knobs: Any
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of these grades, selections of strips and keywords, which answers Harwick."""
    return converse(
        CRAG(shelf(), **{"k": 1, "external_k": 1, **knobs}),
        QUESTION,
        GradePassage=grades,
        SelectStrips=strips or [],
        RewriteQuery=[{"query": query}] if query else [],
        AnswerFromContext=[{"answer": "Harwick"}],
    )


def evaluated(prediction: Any) -> Any:
    return next(step for step in prediction.steps if step.action == "evaluate")


def test_strips_are_of_three_sentences_or_fifty_words() -> None:
    sentences = tuple(f"Sentence {n}." for n in range(7))
    passage = Passage("1", "T", " ".join(sentences), sentences)
    assert strips_of(passage, "sentences")[1:] == [
        "Sentence 3. Sentence 4. Sentence 5.",
        "Sentence 6.",
    ]
    long = Passage("2", "T", " ".join(map(str, range(120))))
    assert [len(strip.split()) for strip in strips_of(long, "words")] == [50, 50, 20]
    assert strips_of(long, "passage") == [long.text]


def test_a_full_passage_is_correct_and_an_irrelevant_one_costs_no_selection() -> None:
    prediction, lm, _ = corrected([graded("full"), graded("none")], strips=[{"keep": [1]}], k=2)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    # Both passages are graded at once, so either may get the first reply.
    assert evaluated(prediction).observation == "correct"
    assert sorted(evaluated(prediction).notes["scores"]) == [-1.0, 1.0]
    assert "[2]" not in lm.asked[-1].inputs["context"]
    assert len(prediction.searches) == 1


def test_none_good_discards_them_and_searches_the_keywords() -> None:
    prediction, lm, _ = corrected(
        [graded("none", 0.95)] * 2, strips=[{"keep": [1]}], query="Eastmere county", k=2
    )
    assert [s.query for s in prediction.searches] == [QUESTION, "Eastmere county"]
    context = lm.asked[-1].inputs["context"]
    assert "Eastmere is a town" in context
    assert "Salt Road" not in context


def test_a_part_however_sure_is_ambiguous_and_what_was_kept_is_shown_to_the_rewriter() -> None:
    prediction, lm, _ = corrected(
        [graded("partial", 0.95)], strips=[{"keep": [1]}] * 2, query="Eastmere county"
    )
    assert evaluated(prediction).observation == "ambiguous"
    rewriting, selecting, answering = lm.asked[-3:]
    first = f"[1] {evaluated(prediction).pids[0]}"
    assert first in rewriting.inputs["context"]
    assert first in selecting.inputs["known"]
    assert first in answering.inputs["context"]
    assert "[2] Eastmere" in answering.inputs["context"]


def test_where_no_strip_of_the_second_search_matters_nothing_is_added() -> None:
    prediction, lm, _ = corrected(
        [graded("partial")], strips=[{"keep": [99]}, {"keep": []}], query="Eastmere county"
    )
    assert prediction.counts["no_strip_kept"] == 2
    context = lm.asked[-1].inputs["context"]
    assert "[1]" in context  # of the first search the passage stays whole
    assert "Eastmere" not in context


def test_strips_that_are_apart_are_shown_as_one_passage_that_the_record_knows() -> None:
    sentences = [f"Harwick fact {n}." for n in range(9)]
    passage = Passage("Harwick", "Harwick", " ".join(sentences), tuple(sentences))
    prediction, lm, _ = converse(
        CRAG(make_retriever("bm25", Corpus([passage])), k=1, strips_kept=2),
        "Harwick?",
        GradePassage=[graded("full")],
        SelectStrips=[{"keep": [3, 1, 9]}],
        AnswerFromContext=[{"answer": "fact"}],
    )
    assert "fact 2. ... Harwick fact 6" in lm.asked[-1].inputs["context"]
    assert prediction.steps[-1].pids == ("Harwick",)


def test_without_a_second_source_incorrect_answers_without_context() -> None:
    _, lm, _ = corrected([graded("none")], external="none")
    assert lm.asked[-1].inputs["context"].startswith("[]")


@pytest.mark.parametrize("only", ["correct", "incorrect", "ambiguous"])
def test_an_action_can_be_fixed(only: str) -> None:
    prediction, _, _ = corrected([graded("partial")], only=only, refine=False, rewrite=False)
    assert evaluated(prediction).observation == only
    assert len(prediction.searches) == (1 if only == "correct" else 2)


def test_a_reranker_can_be_the_evaluator() -> None:
    prediction, lm, _ = corrected(
        [], k=2, evaluator="maxsim", refine=False, lower=-1, upper=1, external="none"
    )
    assert all(-1 <= score <= 1 for score in evaluated(prediction).notes["scores"])
    assert len(lm.asked) == 1
    with pytest.raises(KnobError, match="grades nothing"):
        CRAG(shelf(), evaluator="none")
