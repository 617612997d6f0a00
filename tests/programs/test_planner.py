"""The planner's tree and its moves, by scripted conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest

from ragbench.errors import KnobError
from ragbench.programs import drivers
from ragbench.programs.drivers import is_answer, jaccard, unit
from ragbench.programs.planner import PlannerRAG
from ragbench.programs.planner_tree import Tree, best_entity, is_poor
from ragbench.signatures.types import TreeNode
from tests.programs.shelf import converse, shelf

QUESTION = "In which county was the author of Salt Road born?"
WHO = "Who is the author of Salt Road?"
WHERE = "In which county was that person born?"


def gate(kind: str = "bridge", *, retrieve: bool = True) -> list[dict[str, Any]]:
    return [{"retrieve": retrieve, "question_type": kind}]


def do(action: str, node_id: str = "n0") -> dict[str, str]:
    return {"action": action, "node_id": node_id}


def split(*questions: str) -> dict[str, Any]:
    tasks = [{"id": f"t{i}", "question": q} for i, q in enumerate(questions)]
    return {"goal": "the county", "subtasks": tasks}


def solved(answer: str, confidence: float = 0.5) -> dict[str, Any]:
    return {"answer": answer, "confidence": confidence}


def test_the_gate_may_answer_from_memory() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(retrieve=False),
        DirectAnswer=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "direct")
    assert len(ledger.calls) == 2


def test_split_solve_each_and_synthesise_takes_thirteen_calls_with_a_refinement() -> None:
    prediction, lm, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT"),
            do("TRAVERSE", "n1"),
            do("TRAVERSE", "n2"),
            do("TRAVERSE", "n0"),
            do("ROLLOUT", "n1"),
        ],
        Decompose=[split(WHO, WHERE), split("Who wrote the novel on the caravan?")],
        AnswerWithConfidence=[solved("Orla Venn"), solved("Dunmoor"), solved("Dunmoor", 0.6)],
        SynthesizeAnswer=[{"answer": "unknown"}],
        RefineAnswer=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "max_steps")
    assert len(ledger.calls) == ledger.path.calls == 13
    assert [node["id"] for node in prediction.tree] == ["n0", "n1", "n2", "n3"]
    # A child's query carries the answer of its elder sister, the root's those of its children.
    assert [search.query for search in prediction.searches] == [
        WHO,
        f"{WHERE} Orla Venn",
        f"{QUESTION} Orla Venn Dunmoor",
    ]
    solving = [asked for asked in lm.asked if asked.signature == "AnswerWithConfidence"]
    assert solving[1].inputs["notes"] == '["Who is the author of Salt Road: Orla Venn"]'


def test_a_separate_confidence_takes_one_more_call_a_node() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), variant="separate_confidence"),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerWithHints=[{"answer": "Dunmoor"}],
        RateAnswer=[{"confidence": 0.9}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert lm.asked[-1].inputs["answer"].startswith("Dunmoor\n")


def test_a_confident_root_ends_the_search_without_a_synthesis() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerWithConfidence=[solved("Dunmoor", 0.8)],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert len(ledger.calls) == 3


def test_synthesis_even_where_the_root_is_confident() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), synthesize_when_root_confident=True),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerWithConfidence=[solved("Dunmoor", 0.8)],
        SynthesizeAnswer=[{"answer": "Dunmoor county"}],
    )
    assert prediction.answer == "Dunmoor county"


def test_stop_with_nothing_solved_solves_the_root_once() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("STOP")],
        AnswerWithConfidence=[solved("Dunmoor", 0.1)],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")


def test_select_solves_an_open_node_and_refocuses_on_a_solved_one() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), max_steps=4),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT"), do("SELECT", "n1"), do("SELECT", "n0"), do("SELECT", "n1")],
        Decompose=[split(WHO, WHERE)],
        AnswerWithConfidence=[solved("Orla Venn"), solved("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    choosing = [a for a in lm.asked if a.signature == "PlannerAction"]
    assert [a.inputs["active_id"][:2] for a in choosing] == ["n0", "n1", "n1", "n0"]
    assert len(prediction.searches) == 2  # n1 and n0; selecting n1 again searched nothing


def test_rollout_is_refused_at_the_depth_limit_without_a_call() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_depth=1, max_steps=3),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT"), do("ROLLOUT", "n1"), do("TRAVERSE", "n1")],
        Decompose=[split(WHO)],
        AnswerWithConfidence=[solved("Orla Venn")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert len(prediction.tree) == 2


def test_rollout_keeps_two_children_and_drops_near_duplicates() -> None:
    tree = Tree("Which town is bigger, Harwick or Eastmere?")

    def alike(a: str, b: str) -> bool:
        return jaccard(a, b) >= 0.85

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
        alike=alike,
    )
    assert [node.question for node in added] == [
        "How many inhabitants has Harwick?",
        "How many inhabitants has Eastmere?",
    ]
    assert tree.add(tree.root, ["Quite another?"], most=2, alike=alike) == []


def test_a_sub_question_is_a_duplicate_from_the_limit_on() -> None:
    near = "one two three four five six seven"  # six of seven words shared: 0.857
    other = "one two three four five"  # five of six: 0.833
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_steps=2),
        "one two three four five six",
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT"), do("TRAVERSE", "n1")],
        Decompose=[split(near, other)],
        AnswerWithConfidence=[solved("Orla Venn")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    assert [node["question"] for node in prediction.tree[1:]] == [other]


def test_backtrack_gives_the_branch_up_and_goes_to_the_parent() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), max_steps=4),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT"), do("TRAVERSE", "n1"), do("BACKTRACK"), do("TRAVERSE", "n2")],
        Decompose=[split("Who is Tam Quill?", WHERE)],
        AnswerWithConfidence=[solved("a writer"), solved("Dunmoor")],
        SynthesizeAnswer=[{"answer": "Dunmoor"}],
    )
    choosing = [a for a in lm.asked if a.signature == "PlannerAction"]
    assert choosing[3].inputs["active_id"].startswith("n0")
    assert "Tam Quill" not in choosing[3].inputs["tree"]
    assert [node["status"] for node in prediction.tree] == ["open", "pruned", "solved"]
    assert "writer" not in lm.asked[-1].inputs["notes"]


def test_backtrack_at_the_root_does_nothing_and_two_idle_actions_solve_the_deepest_node() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_steps=3),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("BACKTRACK"), do("BACKTRACK"), do("STOP")],
        AnswerWithConfidence=[solved("Dunmoor")],
    )
    assert [step.action for step in prediction.steps] == ["gate", "plan", "plan", "solve", "plan"]


def test_an_unknown_node_is_the_active_one() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE", "n99")],
        AnswerWithConfidence=[solved("Dunmoor", 0.9)],
    )
    assert prediction.counts["unknown_node"] == 1
    assert prediction.tree[0]["status"] == "solved"


def test_a_node_is_not_solved_twice_from_the_same_knowledge() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_steps=5),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE"), do("TRAVERSE"), do("TRAVERSE")],
        AnswerWithConfidence=[solved("Dunmoor")],
    )
    assert prediction.stop_reason == "no_progress"
    assert prediction.answer == "Dunmoor"


def test_an_unreadable_action_solves_the_active_node() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=["?"],
        PlannerAction=["?"],
        AnswerWithConfidence=[solved("Dunmoor", 0.9)],
    )
    assert prediction.answer == "Dunmoor"
    assert prediction.counts["parse_fallback"] == 2


def test_a_poor_answer_to_a_bridge_question_falls_back_to_the_best_name() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_steps=3),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT"), do("TRAVERSE", "n1"), do("TRAVERSE", "n2")],
        Decompose=[split(WHO, WHERE)],
        AnswerWithConfidence=[solved("Orla Venn", 0.5), solved("in Dunmoor", 0.7)],
        SynthesizeAnswer=[{"answer": "yes"}],
        RefineAnswer=[{"answer": "the author of Salt Road"}],
    )
    assert prediction.answer == "Dunmoor"
    assert prediction.counts["entity_fallback"] == 1


@pytest.mark.parametrize(
    ("knobs", "kind"), [({"refine": False}, "bridge"), ({}, "comparison"), ({}, "single")]
)
def test_only_bridge_questions_are_refined(knobs: dict[str, Any], kind: str) -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), **knobs),
        QUESTION,
        RetrievalPlan=gate(kind),
        PlannerAction=[do("TRAVERSE")],
        AnswerWithConfidence=[solved("yes", 0.9)],
    )
    assert prediction.answer == "yes"


def test_the_ablations_take_actions_and_the_gate_away() -> None:
    program = PlannerRAG(shelf(), gate="always", rollout=False, backtrack=False)
    assert get_args(program.choose.signature.output_fields["action"].annotation) == (
        "SELECT",
        "TRAVERSE",
        "STOP",
    )
    _, _, ledger = converse(
        program,
        QUESTION,
        PlannerAction=[do("TRAVERSE")],
        AnswerWithConfidence=[solved("Dunmoor", 0.9)],
    )
    assert len(ledger.calls) == 2


def test_what_was_solved_is_used_when_the_budget_ends() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf(), max_calls=4),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerWithConfidence=[solved("Dunmoor")],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "budget")
    assert len(ledger.calls) == 3


# -- similarity, entities, confidences


class Letters:
    """An embedder of letter counts."""

    def embed_queries(self, texts: Sequence[str]) -> Any:
        rows = np.array([[text.lower().count(c) for c in "abcdefgh"] for text in texts], float)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_similarity_by_the_retrievers_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KnobError, match="use dense or hybrid"):
        PlannerRAG(shelf(), similarity="embedding")
    monkeypatch.setattr("ragbench.programs.planner.embedder_of", lambda retriever: Letters())
    program = PlannerRAG(shelf(), similarity="embedding")
    assert program.alike("abc", "cab") == pytest.approx(1.0)
    assert program.alike("aaa", "bbb") == pytest.approx(0.0)
    assert drivers.embedder_of(shelf()) is None


@pytest.mark.parametrize(
    ("answer", "question", "poor"),
    [
        ("", "Who?", True),
        ("Unknown.", "Who?", True),
        ("Not mentioned in the passages", "Who?", True),
        ("yes", "Who wrote it?", True),
        ("no", "Is Harwick a town?", False),
        ("Salt Road", "Who wrote Salt Road?", True),
        ("Orla Venn", "Who wrote Salt Road?", False),
        ("Nothing Else Matters", "Which song?", False),
        ("None the Richer", "Which band?", False),
    ],
)
def test_poor_answers(answer: str, question: str, poor: bool) -> None:
    assert is_poor(answer, question) is poor


def test_the_best_supported_name_wins_and_of_equals_the_last() -> None:
    def node(number: int, answer: str, confidence: float) -> TreeNode:
        return TreeNode(id=f"n{number}", question="?", answer=answer, confidence=confidence)

    asked = "Where was the author of Salt Road born?"
    nodes = [node(1, "Orla Venn of Salt Road", 0.5), node(2, "Harwick in Dunmoor", 0.5)]
    assert best_entity(asked, nodes) == "Dunmoor"
    nodes.append(node(3, "She is from Harwick", 0.4))
    assert best_entity(asked, nodes) == "Harwick"
    assert best_entity(asked, [node(1, "salt road", 1.0)]) == ""


@pytest.mark.parametrize(
    ("stated", "number"),
    [(0.7, 0.7), (85, 0.85), ("0.5", 0.5), (-1, 0.0), (101, 1.0), (None, 0.0), (float("nan"), 0.0)],
)
def test_stated_confidences_are_brought_to_the_unit_interval(stated: Any, number: float) -> None:
    assert unit(stated) == pytest.approx(number)


def test_is_answer() -> None:
    assert is_answer("Harwick")
    assert not is_answer("n/a")
    assert not is_answer(" . ")
