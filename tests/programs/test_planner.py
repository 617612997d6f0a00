"""The planner's tree and its moves, by scripted conversations."""

from typing import Any, get_args

import pytest

from ragbench.programs.planner.program import PlannerRAG
from ragbench.programs.planner.tree import Tree
from tests.fakes import ScriptedLM
from tests.programs.shelf import COUNTY, check, shelf

WHO = "Who is the author of Salt Road?"
WHERE = "In which county was that person born?"
GATE = {"retrieve": True, "question_type": "bridge"}


def do(action: str, node_id: str = "n0", *sub_questions: str) -> dict[str, Any]:
    return {"action": action, "node_id": node_id, "sub_questions": list(sub_questions)}


def solved(answer: str, confidence: float = 0.9, main: str = "") -> dict[str, Any]:
    return {"answer": answer, "confidence": confidence, "main_answer": main}


def explore(
    *parts: dict[str, Any],
    actions: Any = (),
    kind: str = "bridge",
    final: str = "",
    replies: Any = (),
    **more: Any,
) -> Any:
    """A run of these actions, answers to parts, and `final` from all notes, where one is due."""
    given = {
        "RetrievalPlan": [{**GATE, "question_type": kind}],
        "PlannerAction": list(actions),
        "AnswerPart": list(parts),
        "AnswerWithHints": [{"answer": final}] if final else [],
        **dict(replies),
    }
    return check(PlannerRAG, given, **{"question": COUNTY, "answer": final or "Dunmoor", **more})


def choosing(lm: ScriptedLM) -> list[dict[str, str]]:
    return [asked.inputs for asked in lm.asked if asked.signature == "PlannerAction"]


def each(*numbers: int) -> list[dict[str, Any]]:
    return [do("TRAVERSE", f"n{number}") for number in numbers]


TWO = do("ROLLOUT", "n0", WHO, WHERE)


def test_the_gate_may_answer_from_memory() -> None:
    memory = {"RetrievalPlan": [{**GATE, "retrieve": False}], "DirectAnswer": [{"answer": "D"}]}
    explore(replies=memory, answer="D", stop="direct", calls=2)


def test_two_hops_take_six_calls_where_the_last_part_settles_the_question() -> None:
    # The placeholder is filled, in the search and in the prompt.
    asked = "In which county was Orla Venn born?"
    hops = do("ROLLOUT", "n0", WHO, "In which county was {1} born?")
    parts = solved("Orla Venn"), solved("Dunmoor", 0.9, "Dunmoor")
    counts = {"questions_with_rollout": 1}
    _, lm = explore(*parts, actions=(hops, *each(1, 2)), searched=[WHO, asked], counts=counts)
    assert len(lm.asked) == 6
    last = lm.asked[-1].inputs
    assert last["question"].startswith(asked)
    assert last["main_question"].startswith(COUNTY)
    assert last["notes"] == '["Who is the author of Salt Road: Orla Venn"]'


def test_an_answer_of_little_confidence_solves_nothing_and_is_replaced_later() -> None:
    parts = solved("Eastmere", 0.1), solved("Orla Venn"), solved("Dunmoor", 0.7)
    actions = do("ROLLOUT", "n0", WHERE, WHO), *each(1, 2, 1)
    _, lm = explore(*parts, actions=actions, final="Dunmoor")
    assert "Eastmere (confidence 0.1)" in choosing(lm)[2]["tree"]
    assert "Eastmere" not in lm.asked[-1].inputs["notes"]


@pytest.mark.parametrize(("style", "answer"), [("brief", "Harwick"), ("free", "Born in Harwick.")])
def test_a_question_of_one_fact_is_answered_by_one_look_up(style: str, answer: str) -> None:
    # The root's answer is the one in the wording of a final answer.
    said, asked = solved("Harwick", 0.9, "Born in Harwick."), "Where was Orla Venn born?"
    more: Any = {"question": asked, "answer": answer, "calls": 3, "answer_style": style}
    explore(said, actions=each(0), kind="single", **more)


def test_select_solves_an_open_node_and_refocuses_on_a_solved_one() -> None:
    actions = TWO, do("SELECT", "n1"), do("SELECT", "n0"), do("SELECT", "n1")
    parts = solved("Orla Venn"), solved("Dunmoor", 0.5)
    prediction, lm = explore(
        *parts, actions=actions, final="Dunmoor", stop="max_steps", max_steps=3
    )
    assert [inputs["active_id"][:2] for inputs in choosing(lm)] == ["n0", "n1", "n1", "n0"]
    assert len(prediction.searches) == 2  # n1 and n0; selecting n1 again searched nothing


def test_rollout_keeps_two_children_and_drops_near_duplicates() -> None:
    tree = Tree("Which town is bigger, Harwick or Eastmere?")
    questions = [
        "Which town is bigger: Eastmere or Harwick?",  # the root's own words
        "How many inhabitants has Harwick?",
        "how many inhabitants has the Harwick",
        " ",
        "How many inhabitants has Eastmere?",
        "In which county is Eastmere?",
    ]
    added = tree.add(tree.root, questions, most=2, alike=0.85)
    # They keep their numbers, which placeholders refer to.
    kept = [(node.number, node.question) for node in added]
    assert kept == [(2, questions[1]), (5, questions[4])]
    assert tree.add(tree.root, ["Quite another?"], most=2, alike=0.85) == []


def test_backtrack_gives_the_branch_up_and_goes_to_the_parent() -> None:
    actions = do("ROLLOUT", "n0", "Who is Tam Quill?", WHERE), *each(1), do("BACKTRACK"), *each(2)
    parts = solved("a writer"), solved("Dunmoor")
    more: Any = {"final": "Dunmoor", "stop": "max_steps", "max_steps": 3}
    prediction, lm = explore(*parts, actions=actions, **more)
    assert choosing(lm)[3]["active_id"].startswith("n0")
    assert "Tam Quill" not in choosing(lm)[3]["tree"]
    assert "writer" not in lm.asked[-1].inputs["notes"]
    assert [node["status"] for node in prediction.tree] == ["open", "pruned", "solved"]


def test_a_poor_answer_to_a_bridge_question_falls_back_to_the_best_name() -> None:
    parts = solved("Orla Venn", 0.5), solved("in Dunmoor", 0.7)
    replies = {"RefineAnswer": [{"answer": "the author of Salt Road"}]}
    more: Any = {"answer": "Dunmoor", "sees": ["Orla Venn | "], "counts": {"entity_fallback": 1}}
    explore(*parts, actions=(TWO, *each(1, 2)), final="yes", replies=replies, **more)


def test_the_ablations_take_actions_and_the_gate_away() -> None:
    knobs: Any = {"gate": "always", "rollout": False, "backtrack": False}
    fields = PlannerRAG(shelf(), **knobs).choose.signature.output_fields
    assert get_args(fields["action"].annotation) == ("TRAVERSE", "SELECT", "STOP")
    assert list(fields) == ["action", "node_id"]
    action = {"action": "TRAVERSE", "node_id": "n0"}
    replies = {"RetrievalPlan": [], "PlannerAction": [action]}
    explore(solved("Dunmoor", 0.9), replies=replies, calls=2, **knobs)
