"""RAGentA's judge, filter, claims, audit and follow-up questions, by scripted conversations."""

from math import log
from typing import Any

import dspy
import pytest

from ragbench.programs.workflow.rag_enta import RAGentA
from ragbench.record import Ledger
from tests.fakes import Asked, Reply, ScriptedLM, plausible
from tests.programs.shelf import ask, converse, shelf

QUESTION = "In which county was the author of Salt Road born?"
NOTHING = {"drop": [], "unanswered": [], "follow_ups": []}


def cited(answer: str, *claims: tuple[str, list[int]]) -> dict[str, Any]:
    return {"answer": answer, "claims": [{"statement": s, "evidence": e} for s, e in claims]}


def holds(confidence: float) -> dict[str, Any]:
    return {"holds": confidence >= 0.5, "confidence": max(confidence, 1 - confidence)}


def judged_by(sure: dict[str, float]) -> Any:
    """A script that is this sure of the passages by their titles."""

    def script(asked: Asked) -> Reply:
        if asked.signature == "HoldsAnswer":
            title = asked.inputs["passage"].partition(" | ")[0]
            return holds(sure.get(title, 0.5))
        return {**plausible(asked), **(NOTHING if asked.signature == "AuditClaims" else {})}

    return script


def test_passages_below_mean_less_n_deviations_are_dropped_and_the_rest_ranked() -> None:
    sure = {"Salt Road": 0.6, "Orla Venn": 0.9, "Harwick": 0.1, "Eastmere": 0.1, "Tam Quill": 0.5}
    prediction, lm, _ = ask(RAGentA(shelf(), k=5), judged_by(sure), QUESTION)
    (kept,) = [step for step in prediction.steps if step.action == "filter"]
    scores = {
        step.pids[0]: step.notes["score"] for step in prediction.steps if step.action == "judge"
    }
    assert scores["Orla Venn"] == pytest.approx(log(0.9) - log(0.1), abs=1e-4)
    found = list(scores.values())
    mean = sum(found) / len(found)
    deviation = (sum((s - mean) ** 2 for s in found) / len(found)) ** 0.5
    assert kept.notes["threshold"] == pytest.approx(mean - 0.5 * deviation, abs=1e-3)
    assert kept.pids == ("Orla Venn", "Salt Road", "Tam Quill")
    shown = next(a.inputs["context"] for a in lm.asked if a.signature == "CitedAnswer")
    assert "[1] Orla Venn" in shown
    assert "Harwick is a town" not in shown
    assert [p.pid for p in prediction.passages][:3] == list(kept.pids)


def test_equal_scores_all_pass() -> None:
    prediction, _, _ = ask(RAGentA(shelf(), k=5, n=0), judged_by({}), QUESTION)
    (kept,) = [step for step in prediction.steps if step.action == "filter"]
    assert len(kept.pids) == len([s for s in prediction.steps if s.action == "judge"])


def audited(
    refuse: bool = False, **replies: list[Any]
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run over two passages that the judge believes, and these replies."""
    judged = {"AnswerIfStated": [{"answer": "Harwick"}] * 2, "HoldsAnswer": [holds(0.9)] * 2}
    return converse(RAGentA(shelf(), k=2, refuse=refuse), QUESTION, **judged, **replies)


def test_claims_name_their_passages_and_a_clean_audit_ends_it() -> None:
    prediction, lm, ledger = audited(
        CitedAnswer=[cited("Dunmoor", ("She was born in Harwick.", [2, 2, 9]))],
        AuditClaims=[NOTHING],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert "[1] She was born in Harwick. [1]" in lm.asked[-1].inputs["claims"]
    second = prediction.steps[-2].pids[1]
    assert lm.asked[-1].inputs["context"].startswith(f'["[1] {second}')  # what the claim cites
    assert (len(ledger.calls), ledger.path.calls) == (2 * 2 + 2, 4)


def test_after_dropped_claims_the_answer_is_written_from_those_left() -> None:
    prediction, lm, _ = audited(
        CitedAnswer=[cited("Tollen", ("Tam Quill is a writer.", [2]), ("It is Dunmoor.", [1]))],
        AuditClaims=[{**NOTHING, "drop": [1, 7]}],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert prediction.answer == "Dunmoor"
    assert "Tam Quill" not in lm.asked[-1].inputs["notes"]
    assert "It is Dunmoor. [1]" in lm.asked[-1].inputs["notes"]


@pytest.mark.parametrize(("refuse", "answer"), [(False, "Dunmoor"), (True, "noanswer")])
def test_with_no_claim_left_the_draft_stands_unless_it_is_to_refuse(
    refuse: bool, answer: str
) -> None:
    prediction, _, _ = audited(
        refuse=refuse,
        CitedAnswer=[cited("Dunmoor", ("It is Dunmoor.", [1]))],
        AuditClaims=[{**NOTHING, "drop": [1]}],
    )
    assert prediction.answer == answer
    assert prediction.counts["all_claims_dropped"] == 1


def gap(question: str) -> dict[str, Any]:
    return {"drop": [], "unanswered": ["something"], "follow_ups": [question]}


def test_gaps_are_worked_in_one_by_one_and_audited_again_with_all_found_before() -> None:
    prediction, lm, _ = audited(
        CitedAnswer=[cited("Harwick", ("She was born in Harwick.", [1]))],
        CitedPart=[cited("Dunmoor", ("Harwick is in Dunmoor.", [1])), cited("900")],
        AuditClaims=[gap("Which county is Harwick in?"), gap("How many live there?"), NOTHING],
        RefineAnswer=[{"answer": "Dunmoor"}, {"answer": "Dunmoor"}],
    )
    assert prediction.answer == "Dunmoor"
    kept = {pid for step in prediction.steps if step.action == "filter" for pid in step.pids}
    parts = [a for a in lm.asked if a.signature == "CitedPart"]
    assert not any(f"] {pid} |" in parts[0].inputs["context"] for pid in kept)
    assert "Harwick is a town" in parts[0].inputs["context"]
    assert f"Which county is Harwick in? (needed for: {QUESTION})" in parts[0].prompt
    audits = [a for a in lm.asked if a.signature == "AuditClaims"]
    assert "[2] Harwick is in Dunmoor. [2]" in audits[1].inputs["claims"]
    assert "[2] Harwick | " in audits[1].inputs["context"]
    last = [a for a in lm.asked if a.signature == "RefineAnswer"][-1].inputs["notes"]
    assert '"Which county is Harwick in: Dunmoor", "How many live there: 900"' in last
    assert "She was born in Harwick." in last


def test_a_follow_up_without_an_answer_is_not_worked_in() -> None:
    prediction, _, _ = audited(
        CitedAnswer=[cited("Harwick")],
        CitedPart=[cited("")],
        AuditClaims=[{"drop": [], "unanswered": ["the county of Harwick"], "follow_ups": []}],
    )
    assert prediction.answer == "Harwick"
    assert prediction.searches[1].query == "the county of Harwick"


def test_follow_ups_without_an_unanswered_part_are_left() -> None:
    prediction, _, _ = audited(
        CitedAnswer=[cited("Dunmoor")],
        AuditClaims=[{"drop": [], "unanswered": [], "follow_ups": ["Who is Tam Quill?"]}],
    )
    assert len(prediction.searches) == 1
