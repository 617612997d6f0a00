"""Self-RAG's gate, grades, scores and beam, by scripts that answer by passage."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from ragbench.errors import KnobError, LMSetupError
from ragbench.programs.core.budget import Budget
from ragbench.programs.core.confidence import _from_tokens, ask_probabilities, grader
from ragbench.programs.core.trace import Trace
from ragbench.programs.self_rag.beam import Draft
from ragbench.programs.self_rag.grades import Candidate, select
from ragbench.programs.self_rag.program import SelfRAG
from ragbench.signatures.judging import IsRel, IsUse, RetrievalDecision
from tests.fakes import Asked, Reply
from tests.programs.shelf import ask, shelf

QUESTION = "Where was the author of the novel Salt Road born?"
RETRIEVE = {"retrieve": True, "confidence": 0.9}


def shown(asked: Asked, *needles: str) -> bool:
    """Whether the passage the call shows is one of these titles."""
    text = asked.inputs.get("passage") or asked.inputs.get("context", "")
    return any(f"{needle} |" in text for needle in needles)


def by_signature(**rules: Callable[[Asked], Reply] | Reply) -> Callable[[Asked], Reply]:
    def script(asked: Asked) -> Reply:
        rule = rules.get(asked.signature)
        assert rule is not None, f"unexpected call of {asked.signature}"
        return rule(asked) if callable(rule) else rule

    return script


def run(script: Callable[[Asked], Reply], **knobs: Any) -> tuple[Any, Any, Any]:
    return ask(SelfRAG(shelf(), **knobs), script, QUESTION)


def critique(
    answer: str, relevance: str = "relevant", support: str = "full", utility: int = 5
) -> dict[str, Any]:
    return {"relevance": relevance, "answer": answer, "support": support, "utility": utility}


# -- combined


def test_combined_scores_utility_plus_twice_support_plus_half_relevance() -> None:
    def grade(asked: Asked) -> Reply:
        if shown(asked, "Orla Venn"):
            return critique("Harwick", support="partial", utility=4)
        return critique("Eastmere", relevance="irrelevant", support="none", utility=5)

    script = by_signature(RetrievalDecision=RETRIEVE, CritiquedAnswer=grade)
    prediction, lm, ledger = run(script)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    notes = [step.notes for step in prediction.steps if step.action == "critique"]
    assert sorted(note["score"] for note in notes) == [5.0, 5.0, 5.5]
    # All of a passage in one call, in the order of the paper, and no confidence that is not used.
    assert (len(ledger.calls), ledger.path.calls) == (4, 2)
    assert list(lm.asked[0].fields) == ["retrieve"]
    assert list(lm.asked[1].fields) == ["relevance", "answer", "support", "utility"]


def test_an_answer_without_enough_support_ranks_below_one_with_it() -> None:
    def grade(asked: Asked) -> Reply:
        if shown(asked, "Orla Venn"):
            return critique("Harwick", support="partial", utility=2)
        return critique("Eastmere", support="none", utility=5)

    script = by_signature(RetrievalDecision=RETRIEVE, CritiquedAnswer=grade)
    assert run(script)[0].answer == "Harwick"
    assert run(script, support_threshold="none")[0].answer == "Eastmere"


def test_a_refusal_is_no_answer_however_useful_it_is_called() -> None:
    def grade(asked: Asked) -> Reply:
        if shown(asked, "Orla Venn"):
            return critique("Harwick", relevance="irrelevant", support="none", utility=1)
        return critique("Not stated in the passage.", utility=5)

    script = by_signature(RetrievalDecision=RETRIEVE, CritiquedAnswer=grade)
    assert run(script)[0].answer == "Harwick"


def test_the_gate_may_answer_from_memory_in_two_calls() -> None:
    script = by_signature(RetrievalDecision={"retrieve": False}, DirectAnswer={"answer": "Harwick"})
    prediction, _, ledger = run(script)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "direct")
    assert len(ledger.calls) == 2
    assert prediction.searches == []


def test_an_unclear_gate_retrieves_and_unreadable_grades_take_the_defaults() -> None:
    script = scored(RetrievalDecision="Perhaps?", IsSup="Quite.", IsUse="Very.")
    prediction, _, _ = run(script, variant="per_passage", k=1)
    assert prediction.answer == "Harwick"
    assert prediction.counts["parse_fallback"] == 3
    notes = [step.notes for step in prediction.steps if step.action == "critique"]
    expected = {"relevance": "relevant", "support": "partial", "utility": 3, "score": 4.5}
    assert notes == [expected]


def test_an_answer_whose_grades_cannot_be_read_is_kept() -> None:
    reply = {"answer": "Harwick", "support": "rather", "utility": "very"}
    prediction, _, _ = run(by_signature(RetrievalDecision=RETRIEVE, CritiquedAnswer=reply))
    assert (prediction.answer, prediction.counts["partial_reply"]) == ("Harwick", 3)
    notes = [step.notes for step in prediction.steps if step.action == "critique"]
    assert notes[0] == {"relevance": "relevant", "support": "partial", "utility": 3, "score": 4.5}


def test_the_gate_can_be_decided_by_a_knob() -> None:
    direct = by_signature(DirectAnswer={"answer": "Harwick"})
    assert len(run(direct, gate="never")[2].calls) == 1
    always = by_signature(CritiquedAnswer=critique("Harwick"))
    assert len(run(always, gate="always")[2].calls) == 3


def test_without_a_relevant_passage_the_model_answers_from_memory() -> None:
    reply = critique("", relevance="irrelevant", support="none", utility=1)
    script = by_signature(
        RetrievalDecision=RETRIEVE, CritiquedAnswer=reply, DirectAnswer={"answer": "Harwick"}
    )
    prediction, _, ledger = run(script)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "direct")
    assert prediction.counts["no_relevant_passage"] == 1
    assert len(ledger.calls) == 5


@pytest.mark.parametrize("knobs", [{}, {"variant": "scored", "joint": True}])
def test_where_no_passage_alone_answers_the_relevant_ones_are_read_at_once(
    knobs: dict[str, Any],
) -> None:
    def grade(asked: Asked) -> Reply:
        joined = shown(asked, "Orla Venn", "Salt Road")
        return critique("", "relevant" if joined else "irrelevant", support="none", utility=1)

    script = by_signature(
        RetrievalDecision=RETRIEVE, CritiquedAnswer=grade, AnswerFromContext={"answer": "Harwick"}
    )
    prediction, lm, _ = run(script, **knobs)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert prediction.counts["no_passage_answered"] == 1
    context = lm.asked[-1].inputs["context"]
    assert "Orla Venn |" in context
    assert "Salt Road |" in context
    assert "Eastmere |" not in context


# -- one reader for all relevant passages


@pytest.mark.parametrize("variant", ["combined", "per_passage", "scored"])
def test_a_joint_reader_sees_all_relevant_passages_at_once(variant: str) -> None:
    script = by_signature(
        RetrievalDecision=RETRIEVE,
        IsRel=lambda asked: {
            "relevance": "relevant" if shown(asked, "Orla Venn", "Salt Road") else "irrelevant",
            "confidence": 1.0,
        },
        AnswerFromContext={"answer": "Harwick"},
    )
    prediction, lm, ledger = run(script, variant=variant, reader="joint")
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(ledger.calls) == 2 + len(prediction.passages)
    context = lm.asked[-1].inputs["context"]
    assert shown(lm.asked[-1], "Orla Venn")
    assert shown(lm.asked[-1], "Salt Road")
    assert "Tam Quill |" not in context


def test_a_joint_reader_is_refused_for_a_beam() -> None:
    with pytest.raises(KnobError, match="no meaning for a beam"):
        SelfRAG(shelf(), variant="beam", reader="joint")


# -- per_passage


def per_passage(relevant: str) -> Callable[[Asked], Reply]:
    return by_signature(
        RetrievalDecision=RETRIEVE,
        IsRel=lambda asked: {
            "relevance": "relevant" if shown(asked, relevant) else "irrelevant",
        },
        AnswerFromContext={"answer": "Harwick"},
        IsSup={"support": "full"},
        IsUse={"utility": 5},
        DirectAnswer={"answer": "from memory"},
    )


def test_per_passage_answers_from_the_relevant_passages_only() -> None:
    prediction, lm, ledger = run(per_passage("Orla Venn"), variant="per_passage")
    assert prediction.answer == "Harwick"
    assert len(ledger.calls) == 1 + len(prediction.passages) + 3
    assert ledger.path.calls == 4  # gate, relevance, answer, then support and usefulness at once
    readers = [asked for asked in lm.asked if asked.signature == "AnswerFromContext"]
    assert [shown(asked, "Orla Venn") for asked in readers] == [True]


def test_per_passage_without_a_relevant_passage_answers_from_memory() -> None:
    prediction, _, _ = run(per_passage("Nobody"), variant="per_passage")
    assert (prediction.answer, prediction.stop_reason) == ("from memory", "direct")
    assert prediction.counts["no_relevant_passage"] == 1


def test_a_refusal_is_not_graded() -> None:
    def answer(asked: Asked) -> Reply:
        return {"answer": "Harwick" if shown(asked, "Orla Venn") else "Unknown"}

    script = scored(
        RetrievalDecision={"retrieve": True},
        IsRel={"relevance": "relevant"},
        IsSup={"support": "full"},
        AnswerFromContext=answer,
    )
    prediction, lm, _ = run(script, variant="per_passage")
    assert prediction.answer == "Harwick"
    assert lm.signatures.count("IsUse") == lm.signatures.count("IsSup") == 1


@pytest.mark.parametrize(("threshold", "reason"), [(0.5, "answered"), (0.7, "direct")])
def test_a_passage_is_read_from_the_relevance_threshold_on(threshold: float, reason: str) -> None:
    script = scored(IsRel={"relevance": "relevant", "confidence": 0.6})
    prediction, _, _ = run(
        script, variant="per_passage", confidence_source="verbal", relevance_threshold=threshold
    )
    assert prediction.stop_reason == reason


# -- scored


def scored(**changed: Any) -> Callable[[Asked], Reply]:
    rules: dict[str, Any] = {
        "RetrievalDecision": RETRIEVE,
        "IsRel": {"relevance": "relevant", "confidence": 0.8},
        "AnswerFromContext": {"answer": "Harwick"},
        "IsSup": {"support": "full", "confidence": 0.6},
        "IsUse": {"utility": 4},
        "DirectAnswer": {"answer": "from memory"},
    }
    return by_signature(**{**rules, **changed})


def test_scored_weighs_the_probabilities_of_the_labels() -> None:
    prediction, _, ledger = run(scored(), variant="scored", k=1)
    note = next(step.notes for step in prediction.steps if step.action == "critique")
    # relevance 0.8; support 0.6 + 0.5 * 0.2; usefulness of 4 is 0.5, by half
    assert note["score"] == pytest.approx(0.8 + 0.7 + 0.25)
    assert (len(ledger.calls), ledger.path.calls) == (5, 3)


def test_scored_keeps_irrelevant_passages_at_a_lower_score() -> None:
    def relevance(asked: Asked) -> Reply:
        label = "relevant" if shown(asked, "Orla Venn") else "irrelevant"
        return {"relevance": label, "confidence": 0.9}

    def answer(asked: Asked) -> Reply:
        return {"answer": "Harwick" if shown(asked, "Orla Venn") else "Eastmere"}

    prediction, _, ledger = run(scored(IsRel=relevance, AnswerFromContext=answer), variant="scored")
    assert prediction.answer == "Harwick"
    assert len(ledger.calls) == 1 + 4 * len(prediction.passages)


@pytest.mark.parametrize(
    ("retrieve", "confidence", "threshold", "reason"),
    [
        (False, 0.7, 0.2, "answered"),  # p(retrieve) = 0.3
        (False, 0.9, 0.2, "direct"),
        (False, 0.9, 0.05, "answered"),
        (True, 0.6, 0.7, "direct"),
    ],
)
def test_scored_retrieves_above_a_probability(
    retrieve: bool, confidence: float, threshold: float, reason: str
) -> None:
    gate = {"retrieve": retrieve, "confidence": confidence}
    prediction, _, _ = run(scored(RetrievalDecision=gate), variant="scored", threshold=threshold)
    assert prediction.stop_reason == reason


def test_scored_jointly_takes_one_call_a_passage() -> None:
    script = by_signature(RetrievalDecision=RETRIEVE, CritiquedAnswer=critique("Harwick"))
    prediction, _, ledger = run(script, variant="scored", joint=True)
    assert len(ledger.calls) == 1 + len(prediction.passages)


def test_vote_sums_scores_over_equal_answers() -> None:
    found = [
        Candidate("Harwick", 2.0),
        Candidate("the Eastmere.", 1.5),
        Candidate("Eastmere", 1.0),
    ]
    assert select(found, "best") == "Harwick"
    assert select(found, "vote") == "the Eastmere."


def test_equal_scores_are_decided_by_agreement_then_by_rank() -> None:
    first, *agreed = [Candidate(text, 2.0) for text in ("Harwick", "Eastmere", "Eastmere")]
    assert select([first, *agreed], "best") == "Eastmere"
    assert select([first, agreed[0]], "best") == "Harwick"


# -- where probabilities come from


def spread(**labels: float) -> dict[str, Any]:
    return {"probabilities": labels, "confidence": 0.5}


def test_decision_types_give_a_probability_for_each_label() -> None:
    script = scored(
        RetrievalDecision={"retrieve": {"noul": 0.25}},
        IsRel={"relevance": spread(relevant=0.9, irrelevant=0.1)},
        IsSup={"support": spread(full=0.2, partial=0.4, none=0.4)},
        IsUse={"utility": spread(**{"1": 0, "2": 0, "3": 0.5, "4": 0, "5": 0.5})},
    )
    prediction, _, _ = run(script, variant="scored", k=1, confidence_source="decision")
    gate, *_, note = (s.notes for s in prediction.steps if s.action in ("gate", "critique"))
    assert gate["probability"] == 0.25
    assert note["score"] == pytest.approx(0.9 + (0.2 + 0.2) + 0.5 * 0.5)


def test_a_distribution_of_zeros_counts_as_unreadable() -> None:
    script = scored(
        RetrievalDecision={"retrieve": {"noul": 1.0}},
        IsRel={"relevance": spread(relevant=0, irrelevant=0)},
        IsSup={"support": spread(full=1, partial=0, none=0)},
        IsUse={"utility": spread(**{str(n): 0.2 for n in range(1, 6)})},
    )
    prediction, _, _ = run(script, variant="scored", k=1, confidence_source="decision")
    note = next(step.notes for step in prediction.steps if step.action == "critique")
    assert note["relevance"] == "relevant"
    assert prediction.counts["parse_fallback"] == 1


def test_logprob_needs_an_lm_that_gives_them() -> None:
    with pytest.raises(LMSetupError, match="set confidence_source to verbal"):
        run(scored(), variant="scored", confidence_source="logprob")


def tokens(*given: tuple[str, dict[str, float]]) -> Any:
    """Token probabilities as DSPy hands them on; the first alternative is the one written."""
    content = [
        SimpleNamespace(
            token=text,
            logprob=math.log(options.get(text, 1.0)),
            top_logprobs=[
                SimpleNamespace(token=t, logprob=math.log(p)) for t, p in options.items()
            ],
        )
        for text, options in given
    ]
    return dspy.Prediction(logprobs=SimpleNamespace(content=content))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ((" relevant", {" relevant": 0.6, " irrelevant": 0.2, " a": 0.2}), 0.75),
        (("rel", {"rel": 0.6, "ir": 0.3, '"rel': 0.1}), 0.7),
        (("relevant", {"relevant": 1.0}), 1.0),
    ],
)
def test_token_probabilities_are_read_at_the_place_of_the_label(
    place: tuple[str, dict[str, float]], expected: float
) -> None:
    text, options = place
    rest = "" if text.strip() == "relevant" else "evant"
    reply = tokens(('{"', {}), ("relevance", {}), ('": "', {}), (text, options), (rest, {}))
    found = _from_tokens(reply, "relevance", "relevant", ("relevant", "irrelevant"))
    assert found["relevant"] == pytest.approx(expected)
    assert sum(found.values()) == pytest.approx(1.0)


def test_token_probabilities_of_numbers_and_booleans() -> None:
    reply = tokens(('{"utility": ', {}), ("4", {"4": 0.5, "5": 0.25, "1": 0.25}), ("}", {}))
    found = _from_tokens(reply, "utility", 4, (1, 2, 3, 4, 5))
    assert found == pytest.approx({1: 0.25, 2: 0, 3: 0, 4: 0.5, 5: 0.25})
    reply = tokens(('{"retrieve":', {}), (" false", {" false": 0.6, " true": 0.4}), ("}", {}))
    assert _from_tokens(reply, "retrieve", False, (True, False))[True] == pytest.approx(0.4)


def test_logprob_asks_the_lm_for_its_alternatives() -> None:
    for signature, field in ((IsRel, "relevance"), (IsUse, "utility")):
        predictor = grader(signature, field, "logprob")
        assert predictor.config == {"logprobs": True, "top_logprobs": 20}
        assert "confidence" not in predictor.signature.output_fields


def test_a_stated_label_is_never_less_likely_than_by_chance() -> None:
    trace = Trace(QUESTION, shelf(), Budget(9, 9))

    def gate(question: str) -> dspy.Prediction:
        return dspy.Prediction(retrieve=False, confidence=0.0)

    found = ask_probabilities(
        trace, gate, "retrieve", (True, False), source="verbal", question=QUESTION
    )
    assert found == {True: 0.5, False: 0.5}
    assert "confidence" in RetrievalDecision.output_fields


# -- beam


def beam(
    *,
    proceed: bool = True,
    segment: Callable[[Asked], Reply] | None = None,
    answer: str = "Harwick",
) -> Callable[[Asked], Reply]:
    def write(asked: Asked) -> Reply:
        title = next(t for t in ("Orla Venn", "Salt Road", "Tam Quill") if shown(asked, t))
        depth = asked.inputs["draft"].count("says") + 1
        return {
            "relevance": "relevant" if title == "Orla Venn" else "irrelevant",
            "segment": f"{title} says {depth}.",
            "support": "none" if title == "Tam Quill" else "full",
            "utility": 5,
            "done": False,
        }

    return by_signature(
        RetrievalDecision=RETRIEVE,
        ContinueRetrieval={"retrieve": proceed, "confidence": 1.0},
        CritiquedSegment=segment or write,
        AnswerWithHints={"answer": answer},
        DirectAnswer={"answer": "from memory"},
    )


def test_beam_keeps_two_drafts_by_the_geometric_mean_of_their_scores() -> None:
    prediction, lm, ledger = run(beam(), variant="beam", k=3)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    # gate; 3 passages; 2 drafts with a gate and 3 passages each; the short answer
    assert len(ledger.calls) == 1 + 3 + 2 * (1 + 3) + 1
    assert ledger.path.calls == 1 + 1 + 2 + 1
    final = lm.asked[-1]
    assert final.inputs["notes"] == '["Orla Venn says 1.", "Orla Venn says 2."]'
    scores = {
        (step.input, step.observation): step.notes["score"]
        for step in prediction.steps
        if step.action == "critique"
    }
    # (1 + 1 + 0.5 + 0.5) / 3 for the best, without its relevance (0 + 1 + 0.5 + 0.5) / 3
    assert scores["", "Orla Venn says 1."] == pytest.approx(1.0)
    assert scores["", "Salt Road says 1."] == pytest.approx(2 / 3, abs=1e-4)
    assert scores["Salt Road says 1.", "Salt Road says 2."] == pytest.approx(2 / 3, abs=1e-4)


def test_beam_searches_with_the_last_sentence_as_well() -> None:
    prediction, _, _ = run(beam(), variant="beam", k=3, width=1)
    assert [search.query for search in prediction.searches] == [
        QUESTION,
        f"{QUESTION} Orla Venn says 1.",
    ]


def test_beam_drops_unsupported_sentences_where_others_have_support() -> None:
    kept, _, _ = run(beam(), variant="beam", k=3, width=3, depth=1, select="vote")
    assert sum(step.action == "answer" for step in kept.steps) == 2
    all_kept, _, _ = run(
        beam(), variant="beam", k=3, width=3, depth=1, select="vote", drop_unsupported=False
    )
    assert sum(step.action == "answer" for step in all_kept.steps) == 3


def test_beam_closes_a_draft_whose_gate_wants_no_more() -> None:
    prediction, _, ledger = run(beam(proceed=False), variant="beam", k=3)
    assert len(ledger.calls) == 1 + 3 + 2 + 1
    assert len(prediction.searches) == 1


def test_beam_closes_a_draft_that_is_done() -> None:
    def done(asked: Asked) -> Reply:
        return {
            "relevance": "relevant",
            "segment": f"{'She' if shown(asked, 'Salt Road') else 'she'} was born in Harwick.",
            "support": "full",
            "utility": 5,
            "done": True,
        }

    prediction, _, ledger = run(beam(segment=done), variant="beam", k=3, depth=6, select="vote")
    # The same sentence from three passages is one draft.
    assert len(ledger.calls) == 1 + 3 + 1
    assert prediction.answer == "Harwick"


def test_beam_without_a_sentence_answers_from_memory() -> None:
    prediction, _, _ = run(beam(segment=lambda asked: "?"), variant="beam", k=3)
    assert (prediction.answer, prediction.stop_reason) == ("from memory", "direct")


def test_beam_answers_from_what_it_has_when_the_budget_ends() -> None:
    prediction, _, ledger = run(beam(), variant="beam", k=3, depth=6, max_calls=8)
    assert prediction.answer == "Harwick"
    assert len(ledger.calls) <= 8
    assert prediction.counts["cut_by_budget"] >= 1


def test_a_longer_draft_is_not_behind_for_being_longer() -> None:
    assert Draft(("a",), scores=(0.8,)).score < Draft(("a", "b"), scores=(0.8, 0.9)).score
