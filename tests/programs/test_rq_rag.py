"""RQ-RAG's tree of queries and its choice of an answer, by scripted conversations."""

from typing import Any

import pytest

from ragbench.programs.workflow.rq_rag import RQRAG
from ragbench.signatures import QUERY_ACTIONS
from tests.fakes import Asked, Reply
from tests.programs.shelf import ask, converse, shelf

QUESTION = "Where was the author of Salt Road born?"


def answer(text: str, sure: float) -> dict[str, Any]:
    return {"answer": text, "confidence": sure}


def by_kind(queries: dict[str, str], answers: dict[str, dict[str, Any]]) -> Any:
    """A script that writes these queries by kind, and answers by the passage shown last."""

    def script(asked: Asked) -> Reply:
        if asked.signature == "RefineQuery":
            return {"query": queries[asked.inputs["kind"].partition("\n")[0]]}
        shown = [title for title in answers if f"] {title} |" in asked.inputs["context"]]
        return answers[shown[-1]] if shown else answer("Tollen", 0.2)

    return script


KINDS = {
    QUERY_ACTIONS["rewrite"]: "Harwick inhabitants",
    QUERY_ACTIONS["decompose"]: "Tam Quill writer",
}


def test_each_action_grows_a_node_and_the_surest_answer_is_kept() -> None:
    script = by_kind(
        KINDS, {"Harwick": answer("Harwick", 0.9), "Tam Quill": answer("Eastmere", 0.5)}
    )
    program = RQRAG(shelf(), k=1, actions=("rewrite", "decompose"))
    prediction, lm, ledger = ask(program, script, QUESTION)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    queries = [s.query for s in prediction.searches]
    assert queries[0] == QUESTION
    assert sorted(queries[1:]) == ["Harwick inhabitants", "Tam Quill writer"]
    assert (len(ledger.calls), ledger.path.calls) == (1 + 2 * 2, 3)
    root = prediction.searches[0].hits[0][0]
    answering = [a for a in lm.asked if a.signature == "AnswerWithConfidence"]
    assert all(f"[1] {root} |" in a.inputs["context"] for a in answering)
    assert prediction.passages[1].pid == "Harwick"


def test_a_vote_sums_the_confidence_of_equal_answers() -> None:
    script = by_kind(
        {**KINDS, QUERY_ACTIONS["disambiguate"]: "Orla Venn"},
        {
            "Orla Venn": answer("Eastmere", 0.4),
            "Harwick": answer("Harwick", 0.6),
            "Tam Quill": answer("the Eastmere", 0.4),
        },
    )
    for select, wanted in (("confidence", "Harwick"), ("vote", "Eastmere")):
        prediction, _, _ = ask(RQRAG(shelf(), k=1, select=select), script, QUESTION)
        assert prediction.answer.removeprefix("the ") == wanted


@pytest.mark.parametrize(("width", "calls"), [(0, 1 + 2 * (2 + 4)), (1, 1 + 2 * (2 + 2))])
def test_a_beam_bounds_the_nodes_that_grow(width: int, calls: int) -> None:
    script = by_kind(KINDS, {"Harwick": answer("Harwick", 0.9), "Tam Quill": answer("no", 0.5)})
    program = RQRAG(shelf(), k=1, depth=2, actions=("rewrite", "decompose"), beam_width=width)
    _, _, ledger = ask(program, script, QUESTION)
    assert len(ledger.calls) == calls


def test_passages_add_up_along_a_path() -> None:
    prediction, lm, _ = converse(
        RQRAG(shelf(), k=1, depth=2, actions=("rewrite",)),
        QUESTION,
        RefineQuery=[{"query": "Harwick inhabitants"}, {"query": ""}],
        AnswerWithConfidence=[answer("a", 0.1), answer("b", 0.2), answer("c", 0.2)],
    )
    assert prediction.answer == "c"  # of equals the one that read more
    assert prediction.searches[-1].query == QUESTION  # a blank query
    context = lm.asked[-1].inputs["context"]
    assert context.index("[1] ") < context.index("[2] Harwick")


def test_refusals_are_no_answers() -> None:
    prediction, _, _ = converse(
        RQRAG(shelf(), k=1, actions=("rewrite",)),
        QUESTION,
        RefineQuery=[{"query": "Harwick inhabitants"}],
        AnswerWithConfidence=[answer("unknown", 1), answer("not stated", 1), answer("Harwick", 0)],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "no_progress")


def test_a_spent_budget_keeps_the_best_answer_so_far() -> None:
    prediction, _, _ = converse(
        RQRAG(shelf(), k=1, max_retrievals=1, actions=("rewrite",)),
        QUESTION,
        RefineQuery=[{"query": "Harwick inhabitants"}],
        AnswerWithConfidence=[answer("Harwick", 0.5)],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "budget")


def test_a_stated_confidence_has_two_digits_and_repeated_queries_are_counted() -> None:
    prediction, _, _ = converse(
        RQRAG(shelf(), k=1, actions=("rewrite", "decompose")),
        QUESTION,
        RefineQuery=[{"query": QUESTION}, {"query": QUESTION.lower()}],
        AnswerWithConfidence=[answer("Tollen", 1), answer("Harwick", 0.99999), answer("b", 0.9)],
    )
    assert prediction.answer == "Harwick"  # which read passages
    assert prediction.counts["repeated_query"] == 2
