"""Self-RAG's gate, grades and scores, by scripts that answer by passage."""

from typing import Any

import pytest

from ragbench.programs.self_rag import Candidate, SelfRAG, select
from tests.fakes import Asked, Reply
from tests.programs.shelf import ask, shelf

QUESTION = "Where was the author of the novel Salt Road born?"
RETRIEVE = {"retrieve": True, "confidence": 0.9}


def shown(asked: Asked, *needles: str) -> bool:
    """Whether the passage the call shows is one of these titles."""
    text = asked.inputs.get("passage") or asked.inputs.get("context", "")
    return any(f"{needle} |" in text for needle in needles)


def run(variant: str = "combined", knobs: dict[str, Any] | None = None, **rules: Any) -> Any:
    """Prediction, LM and ledger where each signature is answered by its rule."""

    def script(asked: Asked) -> Reply:
        rule = {"RetrievalDecision": RETRIEVE, "DirectAnswer": {"answer": "memory"}, **rules}[
            asked.signature
        ]
        reply: Reply = rule(asked) if callable(rule) else rule
        return reply

    return ask(SelfRAG(shelf(), variant=variant, **(knobs or {})), script, QUESTION)


def critique(
    answer: str, relevance: str = "relevant", support: str = "full", utility: int = 5
) -> dict[str, Any]:
    return {"relevance": relevance, "answer": answer, "support": support, "utility": utility}


def notes_of(prediction: Any) -> list[Any]:
    return [step.notes for step in prediction.steps if step.action == "critique"]


def test_combined_grades_every_passage_that_was_searched() -> None:
    def grade(asked: Asked) -> Reply:
        if shown(asked, "Orla Venn"):
            return critique("Harwick", support="partial", utility=4)
        return critique("Eastmere", relevance="irrelevant", support="none", utility=5)

    prediction, lm, ledger = run(CritiquedAnswer=grade)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    # Usefulness plus twice the support plus half the relevance.
    assert sorted(note["score"] for note in notes_of(prediction)) == [5.0, 5.0, 5.5]
    # All of a passage in one call, in the order of the paper, and no confidence that is not used.
    assert (len(ledger.calls), ledger.path.calls) == (1 + len(prediction.passages), 2)
    assert list(lm.asked[0].fields) == ["retrieve"]
    assert list(lm.asked[1].fields) == ["relevance", "answer", "support", "utility"]


def test_a_refusal_is_no_answer_however_useful_it_is_called() -> None:
    def grade(asked: Asked) -> Reply:
        if shown(asked, "Orla Venn"):
            return critique("Harwick", relevance="irrelevant", support="none", utility=1)
        return critique("Not stated in the passage.", utility=5)

    assert run(CritiquedAnswer=grade)[0].answer == "Harwick"


def test_the_gate_may_answer_from_memory_in_two_calls() -> None:
    prediction, _, ledger = run(RetrievalDecision={"retrieve": False})
    assert (prediction.answer, prediction.stop_reason) == ("memory", "direct")
    assert (len(ledger.calls), prediction.searches) == (2, [])


def test_the_gate_can_be_decided_by_a_knob() -> None:
    assert len(run(knobs={"gate": "never"})[2].calls) == 1
    always = run(knobs={"gate": "always"}, CritiquedAnswer=critique("Harwick"))
    assert len(always[2].calls) == 3


@pytest.mark.parametrize(
    ("said", "reason"),
    [((False, 0.7), "answered"), ((False, 0.9), "direct"), ((True, 0), "answered")],
)
def test_a_verbal_gate_retrieves_above_a_probability(said: Any, reason: str) -> None:
    retrieve, confidence = said
    prediction, _, _ = run(
        knobs={"confidence_source": "verbal"},
        RetrievalDecision={"retrieve": retrieve, "confidence": confidence},
        CritiquedAnswer=critique("Harwick"),
    )
    assert prediction.stop_reason == reason


def test_grades_that_cannot_be_read_take_the_defaults_and_the_answer_is_kept() -> None:
    reply = {"answer": "Harwick", "support": "rather", "utility": "very"}
    prediction, _, _ = run(RetrievalDecision="Perhaps?", CritiquedAnswer=reply)
    assert prediction.answer == "Harwick"
    assert (prediction.counts["parse_fallback"], prediction.counts["partial_reply"]) == (1, 3)
    expected = {"relevance": "relevant", "support": "partial", "utility": 3, "score": 4.5}
    assert notes_of(prediction)[0] == expected


@pytest.mark.parametrize("variant", ["combined", "per_passage"])
def test_without_a_relevant_passage_the_model_answers_from_memory(variant: str) -> None:
    prediction, _, ledger = run(
        variant,
        CritiquedAnswer=critique("", relevance="irrelevant", support="none", utility=1),
        IsRel={"relevance": "irrelevant"},
    )
    assert (prediction.answer, prediction.stop_reason) == ("memory", "direct")
    assert prediction.counts["no_relevant_passage"] == 1
    assert len(ledger.calls) == 1 + 3 + 1


@pytest.mark.parametrize(("join", "answer"), [(False, "memory"), (True, "Harwick")])
def test_relevant_passages_may_be_read_at_once_where_none_answers(join: bool, answer: str) -> None:
    def grade(asked: Asked) -> Reply:
        relevance = "relevant" if shown(asked, "Orla Venn", "Harwick") else "irrelevant"
        return critique("not stated", relevance=relevance)

    prediction, lm, _ = run(
        knobs={"join": join}, CritiquedAnswer=grade, AnswerFromContext={"answer": "Harwick"}
    )
    assert prediction.answer == answer
    assert prediction.counts["no_passage_answered"] == 1
    if join:
        assert "[1] Orla Venn" in lm.asked[-1].inputs["context"]
        assert "Eastmere |" not in lm.asked[-1].inputs["context"]


GRADES: dict[str, Any] = {
    "IsRel": {"relevance": "relevant", "confidence": 0.8},
    "AnswerFromContext": {"answer": "Harwick"},
    "IsSup": {"support": "full", "confidence": 0.6},
    "IsUse": {"utility": 4},
}


def test_per_passage_answers_from_the_relevant_passages_only() -> None:
    def relevance(asked: Asked) -> Reply:
        return {"relevance": "relevant" if shown(asked, "Orla Venn") else "irrelevant"}

    prediction, lm, ledger = run("per_passage", **{**GRADES, "IsRel": relevance})
    assert prediction.answer == "Harwick"
    assert len(ledger.calls) == 1 + 3 + 3
    assert ledger.path.calls == 4  # gate, relevance, answer, then support and usefulness at once
    readers = [asked for asked in lm.asked if asked.signature == "AnswerFromContext"]
    assert [shown(asked, "Orla Venn") for asked in readers] == [True]


def test_the_published_weights_count_probabilities() -> None:
    published = {"w_utility": 0.5, "w_support": 1, "w_relevance": 1, "signed_utility": True}
    knobs = {**published, "confidence_source": "verbal", "k": 1}
    prediction, _, _ = run("per_passage", knobs, **GRADES)
    # Relevance 0.8; support 0.6 + 0.5 * 0.2; usefulness of 4 is 0.5, by half.
    assert notes_of(prediction)[0]["score"] == pytest.approx(0.8 + 0.7 + 0.25)


def test_selection_by_score_votes_agreement_and_rank() -> None:
    candidates = [Candidate("x", 3.0), Candidate("b", 2.0), Candidate("B.", 2.0)]
    assert select(candidates, "best") == "x"
    assert select(candidates, "vote") == "b"
    assert select([Candidate("x", 2.0), *candidates[1:]], "best") == "b"  # two say so
    assert select([Candidate("x", 2.0), Candidate("b", 2.0)], "best") == "x"
