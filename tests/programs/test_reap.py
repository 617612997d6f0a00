"""REAP's state machine, by scripted conversations."""

from collections.abc import Sequence
from typing import Any

import dspy
import pytest

from ragbench.programs.reap import REAP, Known, explained, filled
from ragbench.record import Ledger
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


def research(variant: str, **replies: list[Any]) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of these replies, which answers Dunmoor."""
    program = REAP(shelf(), variant=variant)
    return converse(program, QUESTION, **replies, SynthesizeAnswer=[{"answer": "Dunmoor"}])


# -- spec


def test_two_hops_take_four_calls() -> None:
    answer, lm, ledger = research(
        "spec",
        NextSubTask=[queries("author of Salt Road")],
        ReadAndJudge=[
            judged("Orla Venn wrote it", score=0.4, missing=["county of Harwick"]),
            judged("Harwick is in Dunmoor", score=0.8),
        ],
    )
    assert (answer.answer, answer.stop_reason) == ("Dunmoor", "answered")
    assert len(lm.asked) == ledger.path.calls == 4
    assert "Orla Venn wrote it" in lm.asked[-1].prompt
    assert [s.query for s in answer.searches] == ["author of Salt Road", "county of Harwick"]
    assert [f["statement"] for f in answer.facts] == ["Orla Venn wrote it", "Harwick is in Dunmoor"]
    assert answer.facts[0]["pids"] == [answer.searches[0].hits[0][0]]


def test_a_comparison_of_two_chains_takes_four_calls_and_two_rounds() -> None:
    answer, lm, _ = converse(
        REAP(shelf()),
        "Which town is bigger, Orla Venn's birthplace or Tam Quill's?",
        NextSubTask=[queries("birthplace of Orla Venn", "birthplace of Tam Quill")],
        ReadAndJudge=[
            judged(
                "Orla Venn was born in Harwick",
                "Tam Quill was born in Eastmere",
                missing=["inhabitants of Harwick", "inhabitants of Eastmere"],
            ),
            judged("Harwick has 900 inhabitants", "Eastmere has 4,000", score=1),
        ],
        SynthesizeAnswer=[{"answer": "Eastmere"}],
    )
    assert (answer.answer, len(lm.asked), len(answer.searches)) == ("Eastmere", 4, 4)
    second = lm.asked[2].inputs
    tasks = '["inhabitants of Harwick", "inhabitants of Eastmere"]'
    assert second["sub_tasks"].startswith(tasks)
    assert "Tam Quill was born in Eastmere" in second["known_facts"]


def test_spec_searches_the_question_when_the_planner_is_done_before_it_starts() -> None:
    answer, _, _ = research(
        "spec", NextSubTask=[queries(done=True)], ReadAndJudge=[judged("x", score=1)]
    )
    assert [s.query for s in answer.searches] == [QUESTION]


def test_a_fact_that_no_passage_proves_is_dropped() -> None:
    answer, _, _ = research(
        "spec",
        NextSubTask=[queries("Salt Road"), queries(done=True)],
        ReadAndJudge=[judged("Dunmoor, as everybody knows", score=1, evidence=99)],
    )
    assert (answer.facts, answer.counts["unproven_fact"]) == ([], 1)


@pytest.mark.parametrize("variant", ["spec", "paper"])
def test_nothing_is_extracted_from_nothing(variant: str) -> None:
    replies: dict[str, Any] = {
        "spec": {"NextSubTask": [queries("zzz"), queries(done=True)]},
        "paper": {
            "DraftPlan": [plan(task("1", "zzz"))],
            "UpdatePlan": [advance({"zzz": "1"})],
            "RepairPlan": [advance()],
        },
    }[variant]
    answer, lm, _ = converse(
        REAP(shelf(), variant=variant), QUESTION, SynthesizeAnswer=[{"answer": "x"}], **replies
    )
    assert [len(search.hits) for search in answer.searches] == [0]
    assert not {"ReadAndJudge", "FactExtract"} & set(lm.signatures)


# -- paper

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


def test_replanner_follows_a_partial_fact() -> None:
    answer, lm, _ = research(
        "paper",
        DraftPlan=[DRAFT],
        UpdatePlan=[advance({"author of Salt Road": "1"})],
        FactExtract=[facts("Orla Venn, perhaps", level="partial")],
        RepairPlan=[advance(strategy="accept_partial")],
    )
    assert answer.stop_reason == "answered"
    assert "[1, partial] Orla Venn, perhaps" in lm.asked[-2].prompt
    assert "(partial) Orla Venn, perhaps" in lm.asked[-1].prompt
    repair = next(s for s in answer.steps if s.action == "repair")
    assert (repair.thought, repair.notes["strategy"]) == ("too little", "accept_partial")


@pytest.mark.parametrize(
    ("knob", "predictors"),
    [
        ("use_replanner", {"draft", "update", "extract", "synthesize"}),
        ("use_fulfillment", {"draft", "update", "extract", "synthesize"}),
        ("use_clues", {"draft", "update", "repair", "extract", "synthesize"}),
    ],
)
def test_ablations(knob: str, predictors: set[str]) -> None:
    program = REAP(shelf(), variant="paper", **{knob: False})
    assert set(dict(program.named_predictors())) == predictors
    planner = "RepairPlan" if "repair" in predictors else "UpdatePlan"
    replies: dict[str, list[Any]] = {
        "UpdatePlan": [advance({"author of Salt Road": "1"})],
        "RepairPlan": [],
    }
    replies[planner].append(advance())
    answer, _lm, _ = converse(
        program,
        QUESTION,
        DraftPlan=[DRAFT],
        FactExtract=[facts("Orla Venn, perhaps", level="partial")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
        **replies,
    )
    kept = [f["fulfillment"] for f in answer.facts]
    assert (
        kept == {"use_replanner": ["partial"], "use_fulfillment": ["direct"], "use_clues": []}[knob]
    )


def test_malformed_round_is_rolled_back_and_asked_again() -> None:
    circle = [task("1", "a", "2"), task("2", "b", "1")]
    answer, lm, _ = research(
        "paper",
        DraftPlan=[DRAFT],
        UpdatePlan=[
            advance({"never searched": "1"}, *circle),
            advance({"author of Salt Road": "1"}),
            "no JSON at all",
            advance(),
        ],
        FactExtract=[facts("Orla Venn")],
    )
    assert answer.counts["rollback"] == 2
    assert [t["id"] for t in answer.plan] == ["1", "2", "3"]
    assert [s.query for s in answer.searches] == ["author of Salt Road"]
    first, again = (a for a in lm.asked if a.signature == "UpdatePlan" and a.number < 4)
    assert first.prompt == again.prompt  # nothing of the refused plan is left
    assert (first.request.config.temperature, again.request.config.temperature) == (0.0, 0.7)


def test_cyclic_draft_is_tried_three_times_then_replaced_by_the_question() -> None:
    circle = plan(task("1", "a", "2"), task("2", "b", "1"))
    answer, _lm, _ = research(
        "paper",
        DraftPlan=[circle, circle, "?"],
        UpdatePlan=[advance({"Salt Road": "1"}), advance()],
        FactExtract=[facts("Orla Venn")],
    )
    assert [t["question"] for t in answer.plan] == [QUESTION]
    assert answer.counts["bad_draft"] == 3


def test_repeated_queries_are_refused_and_end_the_rounds() -> None:
    one = plan(task("1", "Salt Road?"))
    answer, _, _ = research(
        "paper",
        DraftPlan=[one],
        UpdatePlan=[advance({"Salt Road": "1"}), advance({"salt  ROAD": "1"})],
        FactExtract=[facts("Orla Venn")],
    )
    assert answer.stop_reason == "no_progress"
    assert answer.counts["repeated_query"] == 1


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


# -- the plan as data


def test_placeholders() -> None:
    known = [Known("A.", "direct", "1"), Known("B", "direct", "1"), Known("C", "direct", "2")]
    assert filled("x {1} y {2}", known, most=9) == ["x A y C", "x B y C"]
    assert filled("x {1}", known, most=1) == ["x A"]
    assert filled("x {7} y", known, most=9) == ["x y"]
    assert filled("x { 2 }", known, most=9) == ["x C"]
    assert explained("x {1} y {2} or { 1 }?", known) == "x {1} y {2} or { 1 }? ({1}: A; B, {2}: C)"
    assert explained("x {7} y", known) == "x y"
