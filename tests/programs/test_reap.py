"""REAP's state machine, by scripted conversations."""

from collections.abc import Sequence
from typing import Any

import dspy
import pytest

from ragbench.programs.reap import REAP, Known, MalformedPlanError, checked, explained, filled
from ragbench.record import Ledger
from ragbench.signatures.types import SubTask
from tests.fakes import Asked, Reply, ScriptedLM, never_parses, plausible
from tests.programs.shelf import ask, converse, shelf

QUESTION = "In which county was the author of Salt Road born?"


def facts(*statements: str, level: str = "direct") -> dict[str, Any]:
    return {"facts": [{"statement": s, "evidence": [1], "fulfillment": level} for s in statements]}


def task(id: str, question: str, *after: str) -> dict[str, Any]:
    return {"id": id, "question": question, "depends_on": list(after), "status": "open"}


def plan(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"goal": "the county", "subtasks": list(tasks)}


def advance(
    actions: dict[str, str] | None = None, *tasks: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """A planner's reply; `actions` maps queries to requirement ids, and none means synthesize."""
    return {
        "diagnosis": "too little",
        "strategy": "reword",
        "next_step": "continue" if actions else "synthesize",
        "new_plan": list(tasks),
        "actions": [{"requirement_id": i, "query": q} for q, i in (actions or {}).items()],
        **fields,
    }


def queries(*texts: str, done: bool = False) -> dict[str, Any]:
    return {"done": done, "queries": list(texts)}


def judged(
    *statements: str, score: float = 0.1, missing: Sequence[str] = (), evidence: int = 1
) -> dict[str, Any]:
    """A round's reply of the `spec` form."""
    stated = [{"statement": s, "evidence": [evidence]} for s in statements]
    return {"facts": stated, "score": score, "missing": list(missing)}


def research(
    variant: str, knobs: dict[str, Any] | None = None, **replies: list[Any]
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of these replies, which answers Dunmoor."""
    program = REAP(shelf(), variant=variant, **(knobs or {}))
    return converse(program, QUESTION, **replies, SynthesizeAnswer=[{"answer": "Dunmoor"}])


def searched(prediction: Any) -> list[str]:
    return [search.query for search in prediction.searches]


def test_spec_reads_every_round_in_one_call_until_the_facts_suffice() -> None:
    answer, lm, ledger = research(
        "spec",
        NextSubTask=[queries("author of Salt Road")],
        ReadAndJudge=[
            judged("Orla Venn wrote it", score=0.4, missing=["county of Harwick", "Eastmere"]),
            judged("Harwick is in Dunmoor", score=0.8),
        ],
    )
    assert (answer.answer, answer.stop_reason) == ("Dunmoor", "answered")
    assert len(lm.asked) == ledger.path.calls == 4
    assert searched(answer) == ["author of Salt Road", "county of Harwick", "Eastmere"]
    assert lm.asked[2].inputs["sub_tasks"].startswith('["county of Harwick", "Eastmere"]')
    assert "Orla Venn wrote it" in lm.asked[2].inputs["known_facts"]
    assert [f["statement"] for f in answer.facts] == ["Orla Venn wrote it", "Harwick is in Dunmoor"]
    assert answer.facts[0]["pids"] == [answer.searches[0].hits[0][0]]
    assert "Orla Venn wrote it" in lm.asked[-1].prompt


@pytest.mark.parametrize(
    ("planned", "read", "expected", "counts"),
    [  # the planner is done, before it starts: the question is searched
        ([queries(done=True)], [judged("x", score=1)], [QUESTION], {}),
        # a fact that no passage proves is none, and of nothing nothing is complete
        (
            [queries("Salt Road"), queries(done=True)],
            [judged("Dunmoor, as everybody knows", score=1, evidence=99)],
            ["Salt Road"], {"unproven_fact": 1, "no_facts": 1},
        ),
        # nothing is extracted from no passages
        ([queries("zzz"), queries(done=True)], [], ["zzz"], {}),
    ],
)  # fmt: skip
def test_spec_where_little_is_found(
    planned: list[Any], read: list[Any], expected: list[str], counts: dict[str, int]
) -> None:
    answer, _, _ = research("spec", NextSubTask=planned, ReadAndJudge=read)
    assert (answer.stop_reason, searched(answer)) == ("answered", expected)
    assert dict(answer.counts) == counts


@pytest.mark.parametrize("shown", [False, True])
def test_without_facts_the_answer_is_from_nothing_unless_told_otherwise(shown: bool) -> None:
    answer, lm, _ = research(
        "spec",
        {"read_passages": shown},
        NextSubTask=[queries("Salt Road"), queries(done=True)],
        ReadAndJudge=[judged()],
    )
    assert ("Salt Road is a novel" in lm.asked[-1].prompt) is shown
    assert answer.counts["no_facts"] == 1


DRAFT = plan(
    task("1", "Who wrote Salt Road?"),
    task("2", "Where was {1} born?", "1"),
    task("3", "In which county is {2}?", "2"),
)


def test_paper_happy_path() -> None:
    answer, lm, ledger = research(
        "paper",
        DraftPlan=[DRAFT],
        UpdatePlan=[
            advance({"author of Salt Road": "1"}),
            advance({"Orla Venn birthplace": "2"}),
            advance({"county of Harwick": "3"}),
            advance(),
        ],
        FactExtract=[facts("Orla Venn"), facts("Harwick"), facts("Dunmoor")],
    )
    assert (answer.answer, answer.stop_reason) == ("Dunmoor", "answered")
    assert len(lm.asked) == ledger.path.calls == 2 + 3 * (1 + 1) + 1
    assert [t["id"] for t in answer.plan] == ["1", "2", "3"]
    assert "Salt Road is a novel" not in lm.asked[-1].prompt  # facts only, no passages


@pytest.mark.parametrize(
    ("knob", "kept"),
    [("", ["partial"]), ("use_replanner", ["partial"]), ("use_fulfillment", ["direct"]),
     ("use_clues", [])],
)  # fmt: skip
def test_replanner_follows_a_partial_fact_and_its_ablations(knob: str, kept: list[str]) -> None:
    repairs = knob in ("", "use_clues")
    last = advance(strategy="accept_partial")
    answer, lm, _ = research(
        "paper",
        {knob: False} if knob else {},
        DraftPlan=[DRAFT],
        UpdatePlan=[advance({"author of Salt Road": "1"}), *([] if repairs else [last])],
        RepairPlan=[last] if repairs else [],
        FactExtract=[facts("Orla Venn, perhaps", level="partial")],
    )
    assert [fact["fulfillment"] for fact in answer.facts] == kept
    if not knob:
        assert "[1, partial] Orla Venn, perhaps" in lm.asked[-2].prompt
        assert "(partial) Orla Venn, perhaps" in lm.asked[-1].prompt
        repair = next(s for s in answer.steps if s.action == "repair")
        assert (repair.thought, repair.notes["strategy"]) == ("too little", "accept_partial")


CIRCLE = [task("1", "a", "2"), task("2", "b", "1")]


def test_malformed_round_is_rolled_back_and_asked_again() -> None:
    answer, lm, _ = research(
        "paper",
        DraftPlan=[DRAFT],
        UpdatePlan=[
            advance({"never searched": "1"}, *CIRCLE),
            advance({"author of Salt Road": "1"}),
            "no JSON at all",
            advance(),
        ],
        FactExtract=[facts("Orla Venn")],
    )
    assert answer.counts["rollback"] == 2
    assert [t["id"] for t in answer.plan] == ["1", "2", "3"]
    assert searched(answer) == ["author of Salt Road"]
    first, again = (a for a in lm.asked if a.signature == "UpdatePlan" and a.number < 4)
    assert first.prompt == again.prompt  # nothing of the refused plan is left
    assert (first.request.config.temperature, again.request.config.temperature) == (0.0, 0.7)


def test_bad_drafts_are_replaced_by_the_question_and_repeated_queries_refused() -> None:
    answer, _, _ = research(
        "paper",
        DraftPlan=[plan(*CIRCLE), plan(), "?"],
        UpdatePlan=[advance({"Salt Road": "1"}), advance({"salt  ROAD": "1"})],
        FactExtract=[facts("Orla Venn")],
    )
    assert [t["question"] for t in answer.plan] == [QUESTION]
    assert answer.stop_reason == "no_progress"
    assert (answer.counts["bad_draft"], answer.counts["repeated_query"]) == (3, 1)


def test_no_more_than_ten_attempts_and_five_rounds() -> None:
    def stubborn(asked: Asked) -> Reply:
        if asked.signature in ("UpdatePlan", "RepairPlan"):
            return advance({f"Salt Road {asked.number}": "1"})
        return plausible(asked)

    answer, lm, _ = ask(REAP(shelf(), variant="paper"), stubborn)
    assert answer.stop_reason == "max_steps"
    assert lm.signatures.count("UpdatePlan") == 5
    answer, lm, _ = ask(REAP(shelf(), variant="paper"), never_parses)
    assert lm.signatures.count("UpdatePlan") + lm.signatures.count("RepairPlan") <= 10
    assert answer.answer == "noanswer"


def test_plans_are_checked_and_placeholders_filled() -> None:
    one = SubTask(id="1", question="a", depends_on=["9"])
    assert checked([one])[0].depends_on == []
    for bad in ([], [one, one], [SubTask(id="1", question=" ")]):
        with pytest.raises(MalformedPlanError):
            checked(bad)
    known = [Known("A.", "direct", "1"), Known("B", "direct", "1"), Known("C", "direct", "2")]
    assert filled("x {1} y {2}", known, most=9) == ["x A y C", "x B y C"]
    assert filled("x {1}", known, most=1) == ["x A"]
    assert filled("x {7} y", known, most=9) == ["x y"]
    assert explained("x {1} y {2} or { 1 }?", known) == "x {1} y {2} or { 1 }? ({1}: A; B, {2}: C)"
    assert explained("x {7} y", known) == "x y"
