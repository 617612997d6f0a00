"""The planner's tree and its moves, by scripted conversations."""

from typing import Any, get_args

import dspy
import pytest

from ragbench.programs.planner.program import PlannerRAG
from ragbench.programs.planner.tree import SubQuestion, Tree, best_entity, is_poor
from ragbench.record import Ledger
from tests.fakes import ScriptedLM
from tests.programs.shelf import converse, shelf

QUESTION = "In which county was the author of Salt Road born?"
WHO = "Who is the author of Salt Road?"
WHERE = "In which county was that person born?"


def do(action: str, node_id: str = "n0", *sub_questions: str) -> dict[str, Any]:
    return {"action": action, "node_id": node_id, "sub_questions": list(sub_questions)}


def solved(answer: str, confidence: float = 0.9, main: str = "") -> dict[str, Any]:
    return {"answer": answer, "confidence": confidence, "main_answer": main}


def explore(
    *parts: dict[str, Any],
    actions: tuple[dict[str, Any], ...] = (),
    kind: str = "bridge",
    question: str = QUESTION,
    answer: str = "",
    **knobs: Any,
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of these actions, answers to parts, and `answer` from all notes, where one is due."""
    return converse(
        PlannerRAG(shelf(), **knobs),
        question,
        RetrievalPlan=[{"retrieve": True, "question_type": kind}],
        PlannerAction=list(actions),
        AnswerPart=list(parts),
        AnswerWithHints=[{"answer": answer}] if answer else [],
    )


def choosing(lm: ScriptedLM) -> list[dict[str, str]]:
    return [asked.inputs for asked in lm.asked if asked.signature == "PlannerAction"]


HOPS = do("ROLLOUT", "n0", WHO, "In which county was {1} born?")


def each(*numbers: int) -> list[dict[str, Any]]:
    return [do("TRAVERSE", f"n{number}") for number in numbers]


def test_the_gate_may_answer_from_memory() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=[{"retrieve": False, "question_type": "bridge"}],
        DirectAnswer=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "direct")
    assert len(ledger.calls) == 2


def test_two_hops_take_six_calls_where_the_last_part_settles_the_question() -> None:
    parts = solved("Orla Venn"), solved("Dunmoor", 0.9, "Dunmoor")
    prediction, lm, ledger = explore(*parts, actions=(HOPS, *each(1, 2)))
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert len(ledger.calls) == 6
    # The placeholder is filled, in the search and in the prompt.
    asked = "In which county was Orla Venn born?"
    assert [search.query for search in prediction.searches] == [WHO, asked]
    last = lm.asked[-1].inputs
    assert last["question"].startswith(asked)
    assert last["main_question"].startswith(QUESTION)
    assert last["notes"] == '["Who is the author of Salt Road: Orla Venn"]'
    assert prediction.counts["questions_with_rollout"] == 1


def test_a_part_of_two_facts_is_split_without_being_looked_up() -> None:
    whole = "In which county was the person who wrote the book that Tam Quill edited born?"
    first = do("ROLLOUT", "n0", "Which book did Tam Quill edit?", "Where was its author born?")
    parts = map(solved, ("Salt Road", "Orla Venn", "Dunmoor"))
    second = do("ROLLOUT", "n2", WHO, "In which county was {1} born?")
    actions = first, *each(1), second, *each(3, 4)
    prediction, _, _ = explore(*parts, actions=actions, question=whole, answer="Dunmoor")
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert len(prediction.searches) == 3


BIGGER = "Was the county of Orla Venn's birthplace the same as that of Tam Quill's?"


def test_a_comparison_of_two_chains_takes_eleven_calls_and_answers_the_main_question() -> None:
    births = ["Where was Orla Venn born?", "Where was Tam Quill born?"]
    chains = do("ROLLOUT", "n0", *births, "In which county is {1}?", "In which county is {2}?")
    parts = map(solved, ("Harwick", "Eastmere", "Dunmoor", "Tollen"))
    asked = {
        "actions": (chains, *each(1, 2, 3, 4)),
        "kind": "comparison",
        "question": BIGGER,
        "max_children": 4,
    }
    prediction, lm, ledger = explore(*parts, answer="no", **asked)
    assert (prediction.answer, prediction.stop_reason) == ("no", "answered")
    assert len(ledger.calls) == 11
    # One half's findings stay out of the other half's searches.
    filled = ["In which county is Harwick?", "In which county is Eastmere?"]
    assert [search.query for search in prediction.searches] == [*births, *filled]
    # The final answer is to the main question, and sees the passages of the solved nodes.
    final = lm.asked[-1].inputs
    assert final["question"].startswith(BIGGER)
    for title in ("Orla Venn", "Tam Quill", "Harwick", "Eastmere"):
        assert f"] {title} | " in final["context"]
    assert "In which county is Eastmere: Tollen" in final["notes"]


def test_an_answer_of_little_confidence_solves_nothing_and_is_replaced_later() -> None:
    prediction, lm, _ = explore(
        *(solved("Eastmere", 0.1), solved("Orla Venn"), solved("Dunmoor", 0.7)),
        actions=(do("ROLLOUT", "n0", WHERE, WHO), *each(1, 2, 1)),
        answer="Dunmoor",
    )
    assert prediction.answer == "Dunmoor"
    assert "Eastmere (confidence 0.1)" in choosing(lm)[2]["tree"]
    assert "Eastmere" not in lm.asked[-1].inputs["notes"]


def test_a_question_of_one_fact_is_answered_by_one_look_up() -> None:
    asked = {"question": "Where was Orla Venn born?", "kind": "single", "actions": (*each(0),)}
    prediction, _, ledger = explore(solved("Harwick"), **asked)
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(ledger.calls) == 3
    # The root's answer is the one in the wording of a final answer.
    said = solved("Harwick", 0.9, "She was born in Harwick.")
    prediction, lm, _ = explore(said, **asked, answer_style="free")
    assert prediction.answer == "She was born in Harwick."
    assert "one or two sentences; empty while facts are missing" in lm.asked[-1].prompt


def test_select_solves_an_open_node_and_refocuses_on_a_solved_one() -> None:
    selected = do("SELECT", "n1"), do("SELECT", "n0"), do("SELECT", "n1")
    prediction, lm, _ = explore(
        *(solved("Orla Venn"), solved("Dunmoor", 0.5)),
        actions=(do("ROLLOUT", "n0", WHO, WHERE), *selected),
        answer="Dunmoor",
        max_steps=3,
    )
    assert [inputs["active_id"][:2] for inputs in choosing(lm)] == ["n0", "n1", "n1", "n0"]
    assert len(prediction.searches) == 2  # n1 and n0; selecting n1 again searched nothing
    assert prediction.stop_reason == "max_steps"


def test_rollout_keeps_two_children_and_drops_near_duplicates() -> None:
    tree = Tree("Which town is bigger, Harwick or Eastmere?")

    added = tree.add(
        tree.root,
        [
            "Which town is bigger: Eastmere or Harwick?",  # the root's own words
            "How many inhabitants has Harwick?",
            "how many inhabitants has the Harwick",
            " ",
            "How many inhabitants has Eastmere?",
            "In which county is Eastmere?",
        ],
        most=2,
        alike=0.85,
    )
    # They keep their numbers, which placeholders refer to.
    assert [(node.number, node.question) for node in added] == [
        (2, "How many inhabitants has Harwick?"),
        (5, "How many inhabitants has Eastmere?"),
    ]
    assert tree.add(tree.root, ["Quite another?"], most=2, alike=0.85) == []


def test_backtrack_gives_the_branch_up_and_goes_to_the_parent() -> None:
    first = do("ROLLOUT", "n0", "Who is Tam Quill?", WHERE)
    prediction, lm, _ = explore(
        *(solved("a writer"), solved("Dunmoor")),
        actions=(first, *each(1), do("BACKTRACK"), *each(2)),
        answer="Dunmoor",
        max_steps=3,
    )
    assert choosing(lm)[3]["active_id"].startswith("n0")
    assert "Tam Quill" not in choosing(lm)[3]["tree"]
    assert [node["status"] for node in prediction.tree] == ["open", "pruned", "solved"]
    assert "writer" not in lm.asked[-1].inputs["notes"]


def test_backtrack_at_the_root_does_nothing_and_two_idle_actions_solve_the_deepest_node() -> None:
    actions = do("BACKTRACK"), do("BACKTRACK"), do("STOP")
    prediction, _, _ = explore(solved("Dunmoor", 0.7), actions=actions)
    assert [step.action for step in prediction.steps] == ["gate", "plan", "plan", "solve", "plan"]


def test_a_node_is_not_solved_twice_from_the_same_knowledge() -> None:
    prediction, _, _ = explore(solved("Dunmoor", 0.5), actions=(do("TRAVERSE"),) * 3)
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "no_progress")


def test_a_poor_answer_to_a_bridge_question_falls_back_to_the_best_name() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=[{"retrieve": True, "question_type": "bridge"}],
        PlannerAction=[do("ROLLOUT", "n0", WHO, WHERE), *each(1, 2)],
        AnswerPart=[solved("Orla Venn", 0.5), solved("in Dunmoor", 0.7)],
        AnswerWithHints=[{"answer": "yes"}],
        RefineAnswer=[{"answer": "the author of Salt Road"}],
    )
    assert prediction.answer == "Dunmoor"
    assert prediction.counts["entity_fallback"] == 1
    assert "Orla Venn | " in lm.asked[-1].inputs["context"]


def test_the_ablations_take_actions_and_the_gate_away() -> None:
    program = PlannerRAG(shelf(), gate="always", rollout=False, backtrack=False)
    fields = program.choose.signature.output_fields
    assert get_args(fields["action"].annotation) == ("TRAVERSE", "SELECT", "STOP")
    assert list(fields) == ["action", "node_id"]
    action = {"action": "TRAVERSE", "node_id": "n0"}
    _, _, ledger = converse(
        program, QUESTION, PlannerAction=[action], AnswerPart=[solved("Dunmoor", 0.9)]
    )
    assert len(ledger.calls) == 2


def test_what_was_solved_is_used_when_the_budget_ends() -> None:
    traverse = (do("TRAVERSE"),)
    prediction, _, ledger = explore(solved("Dunmoor", 0.5), actions=traverse, max_calls=4)
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "budget")
    assert len(ledger.calls) == 3


@pytest.mark.parametrize(
    ("answer", "question", "poor"),
    [
        ("Unknown.", "Who?", True),
        ("yes", "Who wrote it?", True),
        ("no", "Is Harwick a town?", False),
        ("Salt Road", "Who wrote Salt Road?", True),
        ("Nothing Else Matters", "Which song?", False),
    ],
)
def test_poor_answers(answer: str, question: str, poor: bool) -> None:
    assert is_poor(answer, question) is poor


def test_the_best_supported_name_wins_and_of_equals_the_last() -> None:
    def node(number: int, answer: str, confidence: float) -> SubQuestion:
        return SubQuestion(id=f"n{number}", question="?", answer=answer, confidence=confidence)

    asked = "Where was the author of Salt Road born?"
    nodes = [node(1, "Orla Venn of Salt Road", 0.5), node(2, "Harwick in Dunmoor", 0.5)]
    assert best_entity(asked, nodes) == "Dunmoor"
    nodes.append(node(3, "She is from Harwick", 0.4))
    assert best_entity(asked, nodes) == "Harwick"
    assert best_entity(asked, [node(1, "salt road", 1.0)]) == ""
