"""CRAG's grades, actions, strips and second search, by scripted conversations."""

from __future__ import annotations

from typing import Any

import pytest

from ragbench.errors import KnobError
from ragbench.programs.workflow.crag import CRAG, strips_of
from ragbench.retrievers.base import Corpus, Passage
from ragbench.retrievers.factory import make_retriever
from tests.programs.shelf import converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def graded(score: float) -> dict[str, Any]:
    """The grade whose score is this, in [-1, 1]."""
    label = "relevant" if score >= 0 else "irrelevant"
    return {"relevance": label, "confidence": (1 + abs(score)) / 2}


def test_strips_are_of_three_sentences_or_fifty_words() -> None:
    sentences = tuple(f"Sentence {n}." for n in range(7))
    passage = Passage("1", "T", " ".join(sentences), sentences)
    assert strips_of(passage, "sentences") == [
        "Sentence 0. Sentence 1. Sentence 2.",
        "Sentence 3. Sentence 4. Sentence 5.",
        "Sentence 6.",
    ]
    long = Passage("2", "T", " ".join(map(str, range(120))))
    assert [len(strip.split()) for strip in strips_of(long, "words")] == [50, 50, 20]
    assert strips_of(long, "passage") == [long.text]


def test_one_good_passage_makes_it_correct_and_strips_are_selected() -> None:
    prediction, lm, ledger = converse(
        CRAG(shelf(), k=2),
        QUESTION,
        IsRel=[graded(0.9), graded(0.1)],
        SelectItems=[{"keep": [1]}, {"keep": []}],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    (evaluated,) = [step for step in prediction.steps if step.action == "evaluate"]
    # Both passages are graded at once, so either may get the first reply.
    assert (evaluated.observation, sorted(evaluated.notes["scores"])) == ("correct", [0.1, 0.9])
    assert lm.asked[-1].inputs["context"].count("[1]") == 1
    assert "[2]" not in lm.asked[-1].inputs["context"]
    assert len(prediction.searches) == 1
    assert len(ledger.calls) == 5


def test_none_good_discards_them_and_searches_the_keywords() -> None:
    prediction, lm, _ = converse(
        CRAG(shelf(), k=2, external_k=1),
        QUESTION,
        IsRel=[graded(-0.95), graded(-1)],
        ExpandQueries=[{"queries": ["Eastmere county"]}],
        SelectItems=[{"keep": [1]}],
        AnswerFromContext=[{"answer": "Tollen"}],
    )
    assert [s.query for s in prediction.searches] == [QUESTION, "Eastmere county"]
    context = lm.asked[-1].inputs["context"]
    assert "Eastmere is a town" in context
    assert "Salt Road" not in context


def test_in_between_does_both_and_leaves_bad_passages_out() -> None:
    prediction, lm, _ = converse(
        CRAG(shelf(), k=2, external_k=1),
        QUESTION,
        IsRel=[graded(-0.5), graded(-0.95)],
        ExpandQueries=[{"queries": ["Eastmere county"]}],
        SelectItems=[{"keep": [1]}, {"keep": [1]}],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    (evaluated,) = [step for step in prediction.steps if step.action == "evaluate"]
    assert evaluated.observation == "ambiguous"
    context = lm.asked[-1].inputs["context"]
    pids = dict(zip(evaluated.notes["scores"], evaluated.pids, strict=True))
    assert f"[1] {pids[-0.5]}" in context
    assert f"{pids[-0.95]} |" not in context
    assert "[2] Eastmere" in context


def test_a_passage_that_both_searches_find_is_refined_once() -> None:
    prediction, lm, _ = converse(
        CRAG(shelf(), k=2, external_k=3, rewrite=False),
        QUESTION,
        IsRel=[graded(-0.5), graded(-0.5)],
        SelectItems=[{"keep": [1]}] * 3,
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    first, second = ([pid for pid, _ in search.hits] for search in prediction.searches)
    assert set(first) < set(second)
    refined = [step.pids[0] for step in prediction.steps if step.action == "refine"]
    assert refined == second
    assert "[3]" in lm.asked[-1].inputs["context"]


def test_strips_that_are_apart_are_shown_as_one_passage_that_the_record_knows() -> None:
    sentences = [f"Harwick fact {n}." for n in range(9)]
    passage = Passage("Harwick", "Harwick", " ".join(sentences), tuple(sentences))
    prediction, lm, _ = converse(
        CRAG(make_retriever("bm25", Corpus([passage])), k=1, strips_kept=2),
        "Harwick?",
        IsRel=[graded(1)],
        SelectItems=[{"keep": [3, 1, 2, 9]}],
        AnswerFromContext=[{"answer": "fact"}],
    )
    assert "fact 8" not in lm.asked[-1].inputs["context"]
    assert prediction.steps[-1].pids == ("Harwick",)


def test_without_a_second_source_incorrect_answers_without_context() -> None:
    _, lm, _ = converse(
        CRAG(shelf(), k=1, external="none"),
        QUESTION,
        IsRel=[graded(-1)],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert lm.asked[-1].inputs["context"].startswith("[]")


@pytest.mark.parametrize("only", ["correct", "incorrect", "ambiguous"])
def test_an_action_can_be_fixed(only: str) -> None:
    prediction, _, _ = converse(
        CRAG(shelf(), k=1, only=only, refine=False, rewrite=False),
        QUESTION,
        IsRel=[graded(0)],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    (evaluated,) = [step for step in prediction.steps if step.action == "evaluate"]
    assert evaluated.observation == only
    assert len(prediction.searches) == (1 if only == "correct" else 2)


def test_where_no_strip_is_selected_the_passages_stay() -> None:
    prediction, lm, _ = converse(
        CRAG(shelf(), k=1),
        QUESTION,
        IsRel=[graded(1)],
        SelectItems=[{"keep": [99]}],
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    assert prediction.counts["no_strip_kept"] == 1
    assert "[1]" in lm.asked[-1].inputs["context"]


def test_a_reranker_can_be_the_evaluator() -> None:
    prediction, _, ledger = converse(
        CRAG(shelf(), k=2, evaluator="maxsim", refine=False, lower=-1, upper=1, external="none"),
        QUESTION,
        AnswerFromContext=[{"answer": "Harwick"}],
    )
    (evaluated,) = [step for step in prediction.steps if step.action == "evaluate"]
    assert all(-1 <= score <= 1 for score in evaluated.notes["scores"])
    assert sum(call.kind == "lm" for call in ledger.calls) == 1
    with pytest.raises(KnobError, match="grades nothing"):
        CRAG(shelf(), evaluator="none")
