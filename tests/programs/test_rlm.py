"""RLM by decomposition, by scripted conversations."""

from typing import Any

import dspy
import pytest

from ragbench.programs.rlm import RLM, full_tree
from ragbench.record import Ledger
from tests.fakes import Asked, Reply, ScriptedLM, blank, never_parses, plausible
from tests.programs.shelf import ask, converse, shelf

QUESTION = "In which county was the author of Salt Road born?"


def direct(answer: str) -> dict[str, Any]:
    return {"mode": "direct", "answer": answer, "sub_questions": [], "combine": ""}


UNKNOWN = {"mode": "unknown", "answer": "", "sub_questions": [], "combine": ""}


def split(*parts: str, combine: str = "compare them", answer: str = "") -> dict[str, Any]:
    return {
        "mode": "decompose", "answer": answer, "sub_questions": list(parts), "combine": combine,
    }  # fmt: skip


def always_splits(asked: Asked) -> Reply:
    if asked.signature == "RecursiveDecompose":
        return split(f"left of {asked.number}?", f"right of {asked.number}?", "more?", "yet more?")
    return {"answer": f"answer {asked.number}"}


def recurse(
    *decisions: dict[str, Any],
    question: str = QUESTION,
    read: str = "",
    combined: tuple[str, ...] = (),
    **knobs: Any,
) -> tuple[dspy.Prediction, ScriptedLM, Ledger]:
    """A run of these decisions, with what is `read` at a leaf and the answers `combined`."""
    return converse(
        RLM(shelf(), **knobs),
        question,
        RecursiveDecompose=list(decisions),
        AnswerFromContext=[{"answer": read}] if read else [],
        SynthesizeAnswer=[{"answer": answer} for answer in combined],
    )


def test_children_without_placeholders_run_at_once() -> None:
    parts = split("Where is Harwick?", "Where is Eastmere?")
    answer, lm, ledger = recurse(parts, direct("D"), direct("T"), combined=("Dunmoor",))
    assert (answer.answer, len(lm.asked), ledger.path.calls) == ("Dunmoor", 4, 3)
    assert "Orla Venn" in lm.asked[0].prompt  # the node's own search
    assert "compare them" in lm.asked[-1].prompt
    assert [n["id"] for n in answer.tree] == ["0", "0.1", "0.2"]
    assert [len(s.hits) > 0 for s in answer.searches] == [True] * 3


@pytest.mark.parametrize(
    ("part", "first", "filled", "event"),
    [
        ("Where was {1} born?", "Orla Venn", "Where was Orla Venn born?", ""),
        ("Where was {2} born?", "unknown", "Where was born?", "bad_placeholder"),
        ("Born in {1}?", "unknown", "Born in (Who wrote it)?", "unfilled_placeholder"),
    ],
)
def test_placeholders_are_filled_in_order(part: str, first: str, filled: str, event: str) -> None:
    parts = split("Who wrote it?", part)
    answer, lm, ledger = recurse(parts, direct(first), direct("x"), combined=("Dunmoor",))
    assert answer.tree[2]["question"] == filled
    assert dict(answer.counts) == ({event: 1} if event else {})
    assert ledger.path.calls == len(lm.asked) == 4
    at_once, _, ledger = recurse(
        parts, direct(first), direct("x"), combined=("Dunmoor",), sequential_children=False
    )
    assert ledger.path.calls == 3
    assert "Orla" not in at_once.tree[2]["question"]


def test_two_hops_take_three_calls_where_the_last_answer_is_the_answer() -> None:
    first = split("Who wrote Salt Road?", "Where was {1} born?", combine="Last.", answer="unknown")
    answer, lm, _ = recurse(first, direct("Orla Venn"), direct("Harwick"))
    assert (answer.answer, len(lm.asked)) == ("Harwick", 3)  # a refusal beside parts is no answer


def test_the_passages_are_read_where_no_child_answered() -> None:
    answer, lm, _ = recurse(split("Who?", "Where?"), UNKNOWN, direct("Not stated."), read="Dunmoor")
    assert (answer.answer, answer.counts["no_child_answered"]) == ("Dunmoor", 1)
    assert "Orla Venn | " in lm.asked[-1].inputs["context"]
    # Those that they found, too.
    _, lm, _ = recurse(split("Dunmoor?", "Tollen?"), UNKNOWN, UNKNOWN, read="Dunmoor", k=1)
    read = lm.asked[-1].inputs["context"]
    assert [title in read for title in ("Orla Venn |", "Harwick |", "Eastmere |")] == [True] * 3


def test_memo_answers_a_question_asked_before() -> None:
    program = RLM(shelf())
    for _ in range(2):  # it belongs to one question, not to the program
        answer, _, _ = converse(
            program,
            QUESTION,
            RecursiveDecompose=[
                split("Who wrote Salt Road?", "After {1}: where?"),
                direct("Orla Venn"),
                split("who wrote SALT ROAD", "Where is Harwick?"),
                direct("Dunmoor"),
            ],
            SynthesizeAnswer=[{"answer": "Harwick"}, {"answer": "Dunmoor"}],
        )
        assert answer.counts["memo_hit"] == 1
        assert [n["answer"] for n in answer.tree if "SALT" in n["question"]] == ["Orla Venn"]


def test_child_equal_to_an_ancestor_is_refused() -> None:
    answer, lm, _ = recurse(
        split(QUESTION.upper(), "Who wrote Salt Road?"),
        split("who wrote salt road", QUESTION),
        read="Orla Venn",
        combined=("Dunmoor",),
    )
    assert answer.counts["cycle_refused"] == 3
    assert lm.signatures[2] == "AnswerFromContext"  # nothing left to split: read instead
    # One that becomes an ancestor by its placeholder, too.
    parts = split("Which town?", "Where is {1}?")
    where = "Where is Harwick?"
    answer, _, _ = recurse(parts, direct("Harwick"), question=where, combined=("Dunmoor",))
    assert answer.counts["cycle_refused"] == 1
    assert answer.tree[2]["status"] == "open"


@pytest.mark.parametrize(("depth", "calls"), [(0, 1), (1, 4), (3, 22), (4, 46)])
def test_depth_limit_forces_leaves(depth: int, calls: int) -> None:
    program = RLM(shelf(), max_depth=depth, max_calls=100)
    answer, lm, ledger = ask(program, always_splits, QUESTION)
    assert len(lm.asked) == full_tree(2, depth) == calls
    assert max(node["depth"] for node in answer.tree) == depth
    assert ledger.path.calls == 2 * depth + 1


@pytest.mark.parametrize("max_calls", [2, 4, 7, 12, 23])
@pytest.mark.parametrize("strategy", ["binary", "multi", "adaptive"])
def test_never_more_calls_than_allowed_and_the_same_each_time(
    max_calls: int, strategy: str
) -> None:
    program = RLM(shelf(), max_calls=max_calls, strategy=strategy)
    runs = []
    for _ in range(2):
        answer, lm, _ = ask(program, always_splits, QUESTION)
        assert len(lm.asked) <= max_calls
        assert answer.answer
        runs.append([(n["id"], n["question"].split(" of ")[0]) for n in answer.tree])
    assert runs[0] == runs[1]


def test_strategies() -> None:
    def children(**knobs: Any) -> int:
        answer, _, _ = ask(RLM(shelf(), **knobs), always_splits, QUESTION)
        return sum(node["depth"] == 1 for node in answer.tree)

    assert children(strategy="binary") == 2
    assert children(strategy="multi", max_calls=187) == 4  # all that the script proposes
    assert children(strategy="multi", max_children=3, max_calls=187) == 3
    assert children(strategy="adaptive") == 2  # 22 calls pay for a binary tree of depth 3
    assert children(strategy="adaptive", max_depth=1) == 4
    assert (full_tree(2, 3), full_tree(5, 3), full_tree(3, 0)) == (22, 187, 1)


def test_a_decision_that_is_none_is_read_instead() -> None:
    for script in (never_parses, blank):
        answer, lm, _ = ask(RLM(shelf()), script)
        assert lm.signatures == ["RecursiveDecompose", "AnswerFromContext"]
        assert answer.answer == "noanswer"
    answer, _, _ = recurse(direct(QUESTION.lower()), read="Dunmoor")
    assert (answer.answer, answer.counts["echoed_question"]) == ("Dunmoor", 1)
    answer, lm, _ = ask(RLM(shelf(), max_retrievals=0), plausible)
    assert (answer.stop_reason, lm.signatures) == ("budget", ["AnswerFromContext"])
