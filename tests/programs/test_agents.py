"""The programs of several agents: ma_rag, rag_enta, ra_isf."""

from math import log
from statistics import fmean, pstdev
from typing import Any

import pytest

from ragbench.programs.workflow.ma_rag import MARAG
from ragbench.programs.workflow.ra_isf import RAISF
from ragbench.programs.workflow.rag_enta import RAGentA
from tests.fakes import Asked, Reply, plausible
from tests.programs.shelf import COUNTY, TOWN, ask, check, shelf, shown, step

ASKED: dict[str, Any] = {"question": COUNTY, "answer": "Dunmoor"}
DUNMOOR = [{"answer": "Dunmoor"}]
DEFINED = {"kind": "lookup", "task": "Which county is Harwick in?"}


# -- ma_rag


def planned(*steps: str) -> dict[str, Any]:
    return {"reasoning": "First things first.", "steps": list(steps)}


def answered(answer: str, *, success: bool = True, rating: int = 9) -> dict[str, Any]:
    return {"reasoning": "So.", "answer": answer, "success": success, "rating": rating}


def notes(*given: list[str]) -> list[dict[str, Any]]:
    return [{"notes": one} for one in given]


def test_each_step_is_searched_noted_and_answered_and_all_but_the_first_defined() -> None:
    replies: dict[str, Any] = {
        "PlanSteps": [planned("Who wrote Salt Road?", "Find the county")],
        "DefineStep": [DEFINED],
        "TakeNotes": notes(["Orla Venn wrote it.", "Orla Venn wrote it."], []),
        "AnswerTask": [answered("Orla Venn"), answered("Dunmoor", rating=7)],
        "SynthesizeAnswer": DUNMOOR,
    }
    searched = ["Who wrote Salt Road?", "Which county is Harwick in?"]
    sees = ["Which county is Harwick in: Dunmoor (rated 7 of 10)"]
    batched: dict[str, Any] = {"variant": "batched", "k": 2, **ASKED}
    _, lm = check(MARAG, replies, searched=searched, calls=2 + 2 + 3, sees=sees, **batched)
    assert "Who wrote Salt Road: Orla Venn" in shown(lm, "DefineStep")["history"]
    assert shown(lm, "AnswerTask", 0)["notes"] == '["Orla Venn wrote it."]'


def test_planner_definer_and_look_ups_are_sampled_and_an_aggregate_sees_its_task_alone() -> None:
    replies: dict[str, Any] = {
        "PlanSteps": [planned("How many live in Harwick?", "Compare")],
        "TakeNotes": notes(["It has 900 inhabitants."]),
        "AnswerTask": [answered("900"), answered("no")],
        "DefineStep": [{"kind": "aggregate", "task": "Is 900 more than 4,000?"}],
        "SynthesizeAnswer": [{"answer": "no"}],
    }
    _, lm = check(MARAG, replies, answer="no", searched=["How many live in Harwick?"], k=1)
    heat = [asked.request.config.temperature for asked in lm.asked]
    assert heat == [0.3, 0.0, 0.3, 0.3, 0.0, 0.0]  # in the order above, the aggregate cold
    assert lm.asked[-2].inputs["notes"] == "[]"


@pytest.mark.parametrize("bad", [answered("", success=False), answered("not stated")])
def test_the_notes_of_a_failed_step_reach_the_new_plan_and_the_summary(bad: Any) -> None:
    replies: dict[str, Any] = {
        "PlanSteps": [planned("Who wrote Slat Road?"), planned("Find its county")],
        "DefineStep": [DEFINED],
        "TakeNotes": notes(["Orla Venn was born in Harwick."], []),
        "AnswerTask": [bad, bad],
        "SynthesizeAnswer": DUNMOOR,
    }
    failed = "Who wrote Slat Road: unknown; found: Orla Venn was born in Harwick."
    batched: dict[str, Any] = {"variant": "batched", "k": 1, **ASKED}
    _, lm = check(MARAG, replies, stop="no_progress", sees=[failed], **batched)
    assert failed in shown(lm, "PlanSteps")["history"]


# -- rag_enta

NOTHING: dict[str, Any] = {"drop": [], "follow_up": ""}


def cited(answer: str, *claims: tuple[str, list[int]]) -> dict[str, Any]:
    return {"answer": answer, "claims": [{"statement": s, "evidence": e} for s, e in claims]}


def holds(confidence: float) -> dict[str, Any]:
    return {"holds": confidence >= 0.5, "confidence": max(confidence, 1 - confidence)}


def test_passages_below_mean_less_n_deviations_are_dropped_and_the_rest_ranked() -> None:
    sure = {"Salt Road": 0.6, "Orla Venn": 0.9, "Harwick": 0.1, "Eastmere": 0.1}

    def script(asked: Asked) -> Reply:
        if asked.signature == "HoldsAnswer":
            return holds(sure.get(asked.inputs["passage"].partition(" | ")[0], 0.5))
        return {**plausible(asked), **(NOTHING if asked.signature == "AuditClaims" else {})}

    prediction, lm, _ = ask(RAGentA(shelf(), k=5, n=0.5), script, COUNTY)
    judged = [step for step in prediction.steps if step.action == "judge"]
    scores = {step.pids[0]: step.notes["score"] for step in judged}
    filtered = step(prediction, "filter")
    threshold = fmean(scores.values()) - 0.5 * pstdev(scores.values())
    assert filtered.notes["threshold"] == pytest.approx(threshold, abs=1e-3)
    assert filtered.pids == ("Orla Venn", "Salt Road", "Tam Quill")  # best first
    assert scores["Orla Venn"] == pytest.approx(log(0.9) - log(0.1), abs=1e-4)
    assert "Harwick is a town" not in shown(lm, "CitedAnswer")["context"]


def audited(replies: dict[str, Any], **more: Any) -> Any:
    """A run over two passages that the judge believes, and these replies."""
    judged = {"AnswerIfStated": [{"answer": "Harwick"}] * 2, "HoldsAnswer": [holds(0.9)] * 2}
    return check(RAGentA, {**judged, **replies}, k=2, **{**ASKED, **more})


BORN = ("She was born in Harwick.", [2, 2, 9])
DUNMOOR_CLAIM = ("It is Dunmoor.", [1])


def test_claims_name_their_passages_and_a_clean_audit_ends_it() -> None:
    replies = {"CitedAnswer": [cited("Dunmoor", BORN)], "AuditClaims": [NOTHING]}
    prediction, lm = audited(replies, calls=2 * 2 + 2, path=4, sees=[f"[1] {BORN[0]} [1]"])
    second = prediction.steps[-2].pids[1]
    assert lm.asked[-1].inputs["context"].startswith(f'["[1] {second}')  # what the claim cites


def test_after_dropped_claims_the_answer_is_written_from_those_left() -> None:
    drafted = cited("Tollen", ("Tam Quill is a writer.", [2]), DUNMOOR_CLAIM)
    replies = {"CitedAnswer": [drafted], "AuditClaims": [{**NOTHING, "drop": [1, 7]}]}
    replies["SynthesizeAnswer"] = DUNMOOR
    audited(replies, sees=["It is Dunmoor. [1]"], hides=["Tam Quill"])


def gap(question: str) -> dict[str, Any]:
    return {"drop": [], "follow_up": question}


WHICH = "Which county is Harwick of Salt Road in?"
BORN_THERE = ("She was born in Harwick.", [1])


def gaps(audits: list[Any], parts: int, **more: Any) -> Any:
    """Run RAGentA with these audits, `parts` of whose follow-up questions are answered."""
    answers = [cited("Dunmoor", ("Harwick is in Dunmoor.", [1])), cited("900")][:parts]
    replies = {"CitedAnswer": [cited("Harwick", BORN_THERE)], "CitedPart": answers}
    return audited({**replies, "AuditClaims": audits, "RefineAnswer": DUNMOOR * parts}, **more)


def test_rag_enta_follow_up_is_answered_before_the_next_one_is_asked() -> None:
    audits = [gap(WHICH), gap("How many inhabitants has Eastmere?"), NOTHING]
    prediction, lm = gaps(audits, 2)
    second = shown(lm, "AuditClaims", 1)
    assert "[2] Harwick is in Dunmoor." in second["claims"]
    assert f"{WHICH[:-1]}: Dunmoor" in second["notes"]
    part, kept = shown(lm, "CitedPart", 0), step(prediction, "filter").pids
    assert not any(f"] {pid} |" in part["context"] for pid in kept)
    assert "Harwick is a town" in part["context"]
    assert part["question"].startswith(f"{WHICH} (needed for: {COUNTY})")
    last = shown(lm, "RefineAnswer")["notes"]
    assert f'"{WHICH[:-1]}: Dunmoor", "How many inhabitants has Eastmere: 900"' in last
    assert "She was born in Harwick." in last


def test_a_follow_up_without_new_passages_is_not_answered() -> None:
    judged = {"AnswerIfStated": [{"answer": "Harwick"}] * 5, "HoldsAnswer": [holds(0.9)] * 5}
    audits = [gap(WHICH), gap(WHICH)]  # a repeated follow-up question ends the loop
    replies = {"CitedAnswer": [cited("Dunmoor", BORN_THERE)], "AuditClaims": audits}
    check(RAGentA, {**judged, **replies}, k=5, n=3, **ASKED)


def test_a_passage_with_an_empty_answer_is_dropped_without_a_judge() -> None:
    answers = [{"answer": ""}, {"answer": "not stated"}]
    replies: dict[str, Any] = {"AnswerIfStated": answers, "CitedAnswer": [cited("Dunmoor")]}
    prediction, _ = check(RAGentA, {**replies, "AuditClaims": [NOTHING]}, k=2, **ASKED)
    assert len(step(prediction, "filter").pids) == 2  # all, where none gives an answer
    replies = {**replies, "HoldsAnswer": [holds(0.9)], "AuditClaims": [NOTHING]}
    replies["AnswerIfStated"] = [{"answer": ""}, {"answer": "Harwick"}]
    prediction, _ = check(RAGentA, replies, k=2, **ASKED)
    assert len(step(prediction, "filter").pids) == 1


# -- ra_isf

SEARCH, MEMORY = {"retrieve": True, "confidence": 1.0}, {"retrieve": False, "confidence": 1.0}
PARTS = {"sub_questions": ["Who wrote Salt Road?", "Where was {1} born?", "And a third?"]}
HARWICK: Any = {"answer": "Harwick"}


def marks(*relevant: bool) -> list[dict[str, Any]]:
    return [{"relevance": ("irrelevant", "relevant")[r], "confidence": 1.0} for r in relevant]


def test_relevant_passages_alone_are_read_and_end_in_an_answer() -> None:
    replies = {"RetrievalDecision": [SEARCH], "IsRel": marks(True, False)}
    replies["AnswerFromContext"] = [HARWICK]
    _, lm = check(RAISF, replies, calls=4, path=3, hides=["[2]"], k=2)
    assert not any("confidence" in asked.fields for asked in lm.asked)


def test_ra_isf_without_relevant_passages_asks_the_parts_in_order() -> None:
    replies = {
        "RetrievalDecision": [SEARCH, MEMORY, SEARCH],
        "IsRel": [*marks(False, False), *marks(True, False)],
        "SplitQuestion": [PARTS],
        "DirectAnswer": [{"answer": "Orla Venn"}],
        "AnswerFromContext": [HARWICK],
        "CombineAnswers": [HARWICK],
    }
    # Each part as it was asked.
    sees = ["Who wrote Salt Road? Orla Venn", "Where was Orla Venn born? Harwick"]
    searched = [TOWN, "Where was Orla Venn born?"]
    check(RAISF, replies, searched=searched, sees=sees, k=2)


def test_the_passages_of_a_question_are_judged_once() -> None:
    first, second = "Where is Harwick?", "Who is Tam Quill?"
    splits = [[first, second], [second], [], []]
    replies: dict[str, Any] = {"IsRel": marks(False, False, False), "AnswerFromContext": [HARWICK]}
    replies["SplitQuestion"] = [{"sub_questions": parts} for parts in splits]
    knobs = {"k": 1, "max_depth": 3, "self_knowledge": False}
    check(RAISF, replies, stop="no_progress", **knobs)


@pytest.mark.parametrize(
    ("parts", "refused", "judged"),
    [
        (["Who wrote Salt Road?", "Where is Harwick?"], 0, 3),
        ([TOWN.lower()], 1, 1),  # the question again
    ],
)
def test_the_depth_bounds_the_splits_and_what_stays_unknown_is_read_at_last(
    parts: list[str], refused: int, judged: int
) -> None:
    replies = {"IsRel": marks(*[False] * judged), "SplitQuestion": [{"sub_questions": parts}]}
    replies["AnswerFromContext"] = [HARWICK]
    knobs = {"k": 1, "max_depth": 1, "self_knowledge": False}
    check(RAISF, replies, stop="no_progress", counts={"cycle_refused": refused}, **knobs)
