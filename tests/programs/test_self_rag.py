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
        if shown(asked, "Tam Quill"):
            return critique("Not stated in the passage.")  # a refusal is no answer
        return critique("Eastmere", relevance="irrelevant", support="none", utility=5)

    prediction, lm, ledger = run(CritiquedAnswer=grade)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    # Usefulness plus twice the support plus half the relevance.
    assert sorted(note["score"] for note in notes_of(prediction)) == [5.0, 5.5, 7.5]
    # All of a passage in one call, in the order of the paper, and no confidence that is not used.
    assert (len(ledger.calls), ledger.path.calls) == (1 + len(prediction.passages), 2)
    assert list(lm.asked[0].fields) == ["retrieve"]
    assert list(lm.asked[1].fields) == ["relevance", "answer", "support", "utility"]


@pytest.mark.parametrize(
    ("knobs", "said", "calls", "reason"),
    [
        ({}, {"retrieve": False}, 2, "direct"),
        ({"gate": "never"}, {}, 1, "direct"),
        ({"gate": "always"}, {}, 3, "answered"),
        # above a probability of 0.2
        ({"confidence_source": "verbal"}, {"retrieve": False, "confidence": 0.7}, 4, "answered"),
        ({"confidence_source": "verbal"}, {"retrieve": False, "confidence": 0.9}, 2, "direct"),
        ({"confidence_source": "verbal"}, {"retrieve": True, "confidence": 0}, 4, "answered"),
    ],
)
def test_the_gate(knobs: Any, said: Any, calls: int, reason: str) -> None:
    prediction, _, ledger = run(
        knobs=knobs, RetrievalDecision=said, CritiquedAnswer=critique("Harwick")
    )
    assert (prediction.stop_reason, len(ledger.calls)) == (reason, calls)
    assert prediction.answer == ("memory" if reason == "direct" else "Harwick")


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

    read = {"CritiquedAnswer": grade, "AnswerFromContext": {"answer": "Harwick"}}
    prediction, lm, _ = run(knobs={"join": join}, **read)
    assert (prediction.answer, prediction.counts["no_passage_answered"]) == (answer, 1)
    context = lm.asked[-1].inputs.get("context", "")
    assert ("[1] Orla Venn" in context, "Eastmere |" in context) == (join, False)


def test_per_passage_answers_from_the_relevant_passages_and_counts_probabilities() -> None:
    def relevance(asked: Asked) -> Reply:
        said = "relevant" if shown(asked, "Orla Venn", "Salt Road") else "irrelevant"
        return {"relevance": said, "confidence": 0.8}

    def answer(asked: Asked) -> Reply:
        return {"answer": "Harwick" if shown(asked, "Orla Venn") else "Unknown"}

    weights = {"w_utility": 0.5, "w_support": 1, "w_relevance": 1, "signed_utility": True}
    prediction, lm, ledger = run(
        "per_passage",
        {**weights, "confidence_source": "verbal"},  # the published ones
        IsRel=relevance,
        AnswerFromContext=answer,
        IsSup={"support": "full", "confidence": 0.6},
        IsUse={"utility": 4},
    )
    assert prediction.answer == "Harwick"
    assert lm.signatures.count("AnswerFromContext") == 2
    assert lm.signatures.count("IsUse") == lm.signatures.count("IsSup") == 1  # of no refusal
    assert ledger.path.calls == 4  # gate, relevance, answer, then support and usefulness at once
    # Relevance 0.8; support 0.6 + 0.5 * 0.2; usefulness of 4 is 0.5, by half.
    assert notes_of(prediction)[0]["score"] == pytest.approx(0.8 + 0.7 + 0.25)


def test_selection_by_score_votes_agreement_and_rank() -> None:
    candidates = [Candidate("x", 3.0), Candidate("b", 2.0), Candidate("B.", 2.0)]
    assert select(candidates, "best") == "x"
    assert select(candidates, "vote") == "b"
    assert select([Candidate("x", 2.0), *candidates[1:]], "best") == "b"  # two say so
    assert select([Candidate("x", 2.0), Candidate("b", 2.0)], "best") == "x"
