"""The planner's tree and its moves, by scripted conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest

from ragbench.errors import KnobError
from ragbench.programs.core import embedder_of, is_answer, jaccard, unit
from ragbench.programs.planner.program import PlannerRAG
from ragbench.programs.planner.refine import best_entity, is_poor
from ragbench.programs.planner.tree import Node, Tree
from tests.programs.shelf import converse, shelf

QUESTION = "In which county was the author of Salt Road born?"
WHO = "Who is the author of Salt Road?"
WHERE = "In which county was that person born?"


def gate(kind: str = "bridge", *, retrieve: bool = True) -> list[dict[str, Any]]:
    return [{"retrieve": retrieve, "question_type": kind}]


def do(action: str, node_id: str = "n0", *sub_questions: str) -> dict[str, Any]:
    return {"action": action, "node_id": node_id, "sub_questions": list(sub_questions)}


def solved(answer: str, confidence: float = 0.9, main: str = "") -> dict[str, Any]:
    return {"answer": answer, "confidence": confidence, "main_answer": main}


def test_the_gate_may_answer_from_memory() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(retrieve=False),
        DirectAnswer=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "direct")
    assert len(ledger.calls) == 2


def test_two_hops_take_four_calls_where_the_last_part_settles_the_question() -> None:
    prediction, lm, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", WHO, "In which county was {1} born?")],
        AnswerPart=[solved("Orla Venn"), solved("Dunmoor", 0.9, "Dunmoor")],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert len(ledger.calls) == 4
    # The placeholder is filled, in the search and in the prompt.
    assert [search.query for search in prediction.searches] == [
        WHO,
        "In which county was Orla Venn born?",
    ]
    last = lm.asked[-1].inputs
    assert last["question"].startswith("In which county was Orla Venn born?")
    assert last["main_question"].startswith(QUESTION)
    assert last["notes"] == '["Who is the author of Salt Road: Orla Venn"]'
    assert prediction.counts["questions_with_rollout"] == 1


def test_an_action_asked_for_before_every_look_up_takes_a_call_more_each() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf(), ask_always=True),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT", "n0", WHO, "In which county was {1} born?"),
            do("TRAVERSE", "n1"),
            do("TRAVERSE", "n2"),
        ],
        AnswerPart=[solved("Orla Venn"), solved("Dunmoor", 0.9, "Dunmoor")],
    )
    assert prediction.answer == "Dunmoor"
    assert len(ledger.calls) == 6


BIGGER = "Was the county of Orla Venn's birthplace the same as that of Tam Quill's?"


def test_a_comparison_of_two_chains_takes_seven_calls_and_answers_the_main_question() -> None:
    prediction, lm, ledger = converse(
        PlannerRAG(shelf()),
        BIGGER,
        RetrievalPlan=gate("comparison"),
        PlannerAction=[
            do(
                "ROLLOUT",
                "n0",
                "Where was Orla Venn born?",
                "Where was Tam Quill born?",
                "In which county is {1}?",
                "In which county is {2}?",
            )
        ],
        AnswerPart=[solved("Harwick"), solved("Eastmere"), solved("Dunmoor"), solved("Tollen")],
        AnswerWithHints=[{"answer": "no"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("no", "answered")
    assert len(ledger.calls) == 7
    # One half's findings stay out of the other half's searches.
    assert [search.query for search in prediction.searches] == [
        "Where was Orla Venn born?",
        "Where was Tam Quill born?",
        "In which county is Harwick?",
        "In which county is Eastmere?",
    ]
    # The final answer is to the main question, and sees the passages of the solved nodes.
    final = lm.asked[-1]
    assert final.inputs["question"].startswith(BIGGER)
    for title in ("Orla Venn", "Tam Quill", "Harwick", "Eastmere"):
        assert f"] {title} | " in final.inputs["context"]
    assert "In which county is Eastmere: Tollen" in final.inputs["notes"]


def test_halves_that_are_split_again_close_their_parents() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf(), max_children=2, ask_always=True),
        BIGGER,
        RetrievalPlan=gate("comparison"),
        PlannerAction=[
            do("ROLLOUT", "n0", "What county is Orla Venn from?", "And Tam Quill, what county?"),
            do("ROLLOUT", "n1", "Where was Orla Venn born?", "In which county is {1}?"),
            do("TRAVERSE", "n3"),
            do("TRAVERSE", "n4"),
            do("ROLLOUT", "n2", "Where was Tam Quill born?", "Of which county is {1}?"),
            do("TRAVERSE", "n5"),
            do("TRAVERSE", "n6"),
        ],
        AnswerPart=[solved("Harwick"), solved("Dunmoor"), solved("Eastmere"), solved("Tollen")],
        AnswerWithHints=[{"answer": "no"}],
    )
    # Three splits beside four look-ups are within max_steps, 5.
    assert (prediction.answer, prediction.stop_reason) == ("no", "answered")
    assert len(ledger.calls) == 13
    nodes = {node["id"]: (node["status"], node["answer"]) for node in prediction.tree}
    assert nodes["n1"] == ("solved", "Dunmoor")
    assert nodes["n2"] == ("solved", "Tollen")
    assert nodes["n0"][0] == "open"


def test_an_answer_of_little_confidence_solves_nothing_and_is_replaced_later() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT", "n0", WHERE, WHO),
            do("TRAVERSE", "n1"),
        ],
        AnswerPart=[solved("Eastmere", 0.1), solved("Orla Venn"), solved("Dunmoor", 0.7)],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    assert prediction.answer == "Dunmoor"
    choosing = [a for a in lm.asked if a.signature == "PlannerAction"]
    assert "Eastmere (confidence 0.1)" in choosing[1].inputs["tree"]
    assert "Eastmere" not in lm.asked[-1].inputs["notes"]


def test_a_part_that_cannot_be_found_is_asked_about() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT", "n0", WHO, "In which county was {1} born?"),
            do("STOP"),
        ],
        AnswerPart=[solved("not stated", 0.9), solved("", 0.0)],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    # What depends on it is not tried; the root is, for nothing is solved, then all that was found.
    assert (
        "n1 (part of n0): Who is the author of Salt Road? -> not found"
        in (lm.asked[-3].inputs["tree"])
    )
    assert prediction.answer == "Dunmoor"


def test_no_placeholder_is_shown_of_a_part_that_was_asked() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT", "n0", WHO, "Where was {1} born?", "In which county is {2}?"),
            do("ROLLOUT", "n3", "In which county is Harwick?"),
            do("STOP"),
        ],
        AnswerPart=[solved("Orla Venn"), solved("", 0.0), solved("Dunmoor")],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    assert prediction.answer == "Dunmoor"
    choosing = [asked for asked in lm.asked if asked.signature == "PlannerAction"]
    assert "Where was Orla Venn born? -> not found" in choosing[1].inputs["tree"]
    notes = lm.asked[-1].inputs["notes"]
    assert "In which county is (Where was Orla Venn born): Dunmoor" in notes
    assert "{" not in notes


@pytest.mark.parametrize(
    ("main", "calls"), [("Dunmoor", 3), ("Orla Venn", 4), ("unknown", 4), ("", 4)]
)
def test_the_first_part_may_settle_the_question_but_not_by_its_own_answer(
    main: str, calls: int
) -> None:
    rest = [solved("Dunmoor", 0.9, "Dunmoor")] if calls > 3 else []
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", WHO, "In which county was {1} born?")],
        AnswerPart=[solved("Orla Venn", 0.9, main), *rest],
    )
    assert prediction.answer == "Dunmoor"
    assert len(ledger.calls) == calls


def test_a_question_of_one_fact_is_looked_up_at_once() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        "Where was Orla Venn born?",
        RetrievalPlan=gate("single"),
        AnswerPart=[solved("Harwick")],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Harwick", "answered")
    assert len(ledger.calls) == 2


def test_the_roots_answer_is_the_one_in_the_wording_of_a_final_answer() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), answer_style="free"),
        "Where was Orla Venn born?",
        RetrievalPlan=gate("single"),
        AnswerPart=[solved("Harwick", 0.9, "She was born in Harwick.")],
    )
    assert prediction.answer == "She was born in Harwick."
    assert "one or two sentences; empty while facts are missing" in lm.asked[-1].prompt


@pytest.mark.parametrize(("answer", "main"), [("Yes", "town"), ("", "Yes"), ("unknown", "Yes")])
def test_a_brief_root_is_answered_by_the_first_answer_there_is(answer: str, main: str) -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        "Are Harwick and Eastmere both towns?",
        RetrievalPlan=gate("single"),
        AnswerPart=[solved(answer, 0.9, main)],
    )
    assert prediction.answer == "Yes"


def test_a_pronoun_takes_the_answer_before_it_into_the_search() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", WHO, WHERE)],
        AnswerPart=[solved("Orla Venn"), solved("Dunmoor", 0.9, "Dunmoor")],
    )
    assert prediction.searches[1].query == f"{WHERE} Orla Venn"


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


def test_a_confident_root_ends_the_search_without_a_further_call() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerPart=[solved("Dunmoor", 0.8)],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert len(ledger.calls) == 3


def test_an_answer_from_all_findings_even_where_the_root_is_confident() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), synthesize_when_root_confident=True),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerPart=[solved("Dunmoor", 0.8)],
        AnswerWithHints=[{"answer": "Dunmoor county"}],
    )
    assert prediction.answer == "Dunmoor county"


def test_stop_with_nothing_solved_solves_the_root_once_and_reads_what_it_found() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("STOP")],
        AnswerPart=[solved("Tollen", 0.1)],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "answered")
    assert lm.asked[-1].inputs["notes"].endswith('born: Tollen (unsure)"]')


def test_select_solves_an_open_node_and_refocuses_on_a_solved_one() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), max_steps=3, ask_always=True),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT", "n0", WHO, WHERE),
            do("SELECT", "n1"),
            do("SELECT", "n0"),
            do("SELECT", "n1"),
        ],
        AnswerPart=[solved("Orla Venn"), solved("Dunmoor", 0.5)],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    choosing = [a for a in lm.asked if a.signature == "PlannerAction"]
    assert [a.inputs["active_id"][:2] for a in choosing] == ["n0", "n1", "n1", "n0"]
    assert len(prediction.searches) == 2  # n1 and n0; selecting n1 again searched nothing
    assert prediction.stop_reason == "max_steps"


def test_rollout_is_refused_at_the_depth_limit() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_depth=1, max_steps=2),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", WHO), do("ROLLOUT", "n1", "Who wrote it?")],
        AnswerPart=[solved("Orla Venn", 0.1), solved("", 0.0)],
        AnswerWithHints=[{"answer": "Dunmoor"}],
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
    # They keep their numbers, which placeholders refer to.
    assert [(node.number, node.question) for node in added] == [
        (2, "How many inhabitants has Harwick?"),
        (5, "How many inhabitants has Eastmere?"),
    ]
    assert tree.add(tree.root, ["Quite another?"], most=2, alike=alike) == []


def test_a_sub_question_is_a_duplicate_from_the_limit_on() -> None:
    near = "one two three four five six seven"  # six of seven words shared: 0.857
    other = "one two three four five"  # five of six: 0.833
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        "one two three four five six",
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", near, other)],
        AnswerPart=[solved("Orla Venn")],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    assert [node["question"] for node in prediction.tree[1:]] == [other]


def test_backtrack_gives_the_branch_up_and_goes_to_the_parent() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), max_steps=3, ask_always=True),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[
            do("ROLLOUT", "n0", "Who is Tam Quill?", WHERE),
            do("TRAVERSE", "n1"),
            do("BACKTRACK"),
            do("TRAVERSE", "n2"),
        ],
        AnswerPart=[solved("a writer"), solved("Dunmoor")],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    choosing = [a for a in lm.asked if a.signature == "PlannerAction"]
    assert choosing[3].inputs["active_id"].startswith("n0")
    assert "Tam Quill" not in choosing[3].inputs["tree"]
    assert [node["status"] for node in prediction.tree] == ["open", "pruned", "solved"]
    assert "writer" not in lm.asked[-1].inputs["notes"]


def test_backtrack_at_the_root_does_nothing_and_two_idle_actions_solve_the_deepest_node() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_steps=5),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("BACKTRACK"), do("BACKTRACK"), do("STOP")],
        AnswerPart=[solved("Dunmoor", 0.7)],
    )
    assert [step.action for step in prediction.steps] == ["gate", "plan", "plan", "solve", "plan"]


def test_an_unknown_node_is_the_active_one() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE", "n99")],
        AnswerPart=[solved("Dunmoor", 0.9)],
    )
    assert prediction.counts["unknown_node"] == 1
    assert prediction.tree[0]["status"] == "solved"


def test_a_node_is_not_solved_twice_from_the_same_knowledge() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), max_steps=5),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE"), do("TRAVERSE"), do("TRAVERSE")],
        AnswerPart=[solved("Dunmoor", 0.5)],
    )
    assert prediction.stop_reason == "no_progress"
    assert prediction.answer == "Dunmoor"


def test_an_unreadable_action_solves_the_active_node() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=["?"],
        PlannerAction=["?"],
        AnswerPart=[solved("Dunmoor", 0.9)],
    )
    assert prediction.answer == "Dunmoor"
    assert prediction.counts["parse_fallback"] == 2


def test_an_answer_whose_confidence_cannot_be_read_is_kept() -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf()),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", WHO, "In which county was {1} born?")],
        AnswerPart=[
            {"answer": "Orla Venn", "confidence": "high", "main_answer": ""},
            solved("Dunmoor", 0.9, "Dunmoor"),
        ],
    )
    assert (prediction.answer, prediction.counts["partial_reply"]) == ("Dunmoor", 1)
    assert prediction.searches[1].query == "In which county was Orla Venn born?"


def test_a_poor_answer_to_a_bridge_question_falls_back_to_the_best_name() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), refine_max_attempts=2),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("ROLLOUT", "n0", WHO, WHERE)],
        AnswerPart=[solved("Orla Venn", 0.5), solved("in Dunmoor", 0.7)],
        AnswerWithHints=[{"answer": "yes"}],
        RefineAnswer=[{"answer": "the author of Salt Road"}, {"answer": "no"}],
    )
    assert prediction.answer == "Dunmoor"
    assert prediction.counts["entity_fallback"] == 1
    assert "Orla Venn | " in lm.asked[-1].inputs["context"]


@pytest.mark.parametrize(
    ("knobs", "kind"),
    [
        ({"refine": False}, "bridge"),
        ({"generic_answers": "none"}, "comparison"),
        ({}, "comparison"),
    ],
)
def test_only_bridge_questions_are_refined(knobs: dict[str, Any], kind: str) -> None:
    prediction, _, _ = converse(
        PlannerRAG(shelf(), **knobs),
        QUESTION,
        RetrievalPlan=gate(kind),
        PlannerAction=[do("TRAVERSE")],
        AnswerPart=[solved("yes", 0.9)],
    )
    assert prediction.answer == "yes"


def test_the_ablations_take_actions_and_the_gate_away() -> None:
    program = PlannerRAG(shelf(), gate="always", rollout=False, backtrack=False)
    fields = program.choose.signature.output_fields
    assert get_args(fields["action"].annotation) == ("TRAVERSE", "SELECT", "STOP")
    assert list(fields) == ["action", "node_id"]
    _, _, ledger = converse(
        program,
        QUESTION,
        PlannerAction=[{"action": "TRAVERSE", "node_id": "n0"}],
        AnswerPart=[solved("Dunmoor", 0.9)],
    )
    assert len(ledger.calls) == 2


def test_what_was_solved_is_used_when_the_budget_ends() -> None:
    prediction, _, ledger = converse(
        PlannerRAG(shelf(), max_calls=4),
        QUESTION,
        RetrievalPlan=gate(),
        PlannerAction=[do("TRAVERSE")],
        AnswerPart=[solved("Dunmoor", 0.5)],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "budget")
    assert len(ledger.calls) == 3


def test_the_forced_answer_reads_the_passages_found() -> None:
    prediction, lm, _ = converse(
        PlannerRAG(shelf(), max_calls=4, gate="always"),
        QUESTION,
        PlannerAction=[do("ROLLOUT", "n0", WHO, WHERE)],
        AnswerPart=[solved("", 0.0), solved("", 0.0)],
        AnswerWithHints=[{"answer": "Dunmoor"}],
    )
    assert (prediction.answer, prediction.stop_reason) == ("Dunmoor", "budget")
    assert "Salt Road | " in lm.asked[-1].inputs["context"]


# -- similarity, entities, confidences


class Letters:
    """An embedder of letter counts."""

    def embed_queries(self, texts: Sequence[str]) -> Any:
        rows = np.array([[text.lower().count(c) for c in "abcdefgh"] for text in texts], float)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_similarity_by_the_retrievers_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KnobError, match="use dense or hybrid"):
        PlannerRAG(shelf(), similarity="embedding")
    monkeypatch.setitem(PlannerRAG.alike.__globals__, "embedder_of", lambda retriever: Letters())
    program = PlannerRAG(shelf(), similarity="embedding")
    assert program.alike("abc", "cab") == pytest.approx(1.0)
    assert program.alike("aaa", "bbb") == pytest.approx(0.0)
    assert embedder_of(shelf()) is None


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
    def node(number: int, answer: str, confidence: float) -> Node:
        return Node(f"n{number}", "?", answer=answer, confidence=confidence)

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
