"""RLM by decomposition, by scripted conversations."""

from typing import Any

import pytest

from ragbench.programs.rlm import RLM, full_tree
from tests.fakes import Asked, Reply, blank, never_parses, plausible
from tests.programs.shelf import COUNTY, ask, check, ended, shelf


def direct(answer: str) -> dict[str, Any]:
    return {"mode": "direct", "answer": answer, "sub_questions": [], "combine": ""}


UNKNOWN = {"mode": "unknown", "answer": "", "sub_questions": [], "combine": ""}


def split(*parts: str, combine: str = "compare them", answer: str = "") -> dict[str, Any]:
    said = {"mode": "decompose", "answer": answer}
    return {**said, "sub_questions": list(parts), "combine": combine}


def always_splits(asked: Asked) -> Reply:
    if asked.signature == "RecursiveDecompose":
        return split(f"left of {asked.number}?", f"right of {asked.number}?", "more?", "yet more?")
    return {"answer": f"answer {asked.number}"}


def recurse(*decisions: dict[str, Any], read: str = "", combined: Any = (), **more: Any) -> Any:
    """A run of these decisions, with what is `read` at a leaf and the answers `combined`."""
    replies = {
        "RecursiveDecompose": list(decisions),
        "AnswerFromContext": [{"answer": read}] if read else [],
        "SynthesizeAnswer": [{"answer": answer} for answer in combined],
    }
    return check(RLM, replies, **{"question": COUNTY, "answer": "Dunmoor", **more})


def test_children_without_placeholders_run_at_once() -> None:
    parts = split("Where is Harwick?", "Where is Eastmere?")
    expected: Any = {"combined": ["Dunmoor"], "calls": 4, "path": 3, "sees": ["compare them"]}
    answer, lm = recurse(parts, direct("D"), direct("T"), **expected)
    assert "Orla Venn" in lm.asked[0].prompt  # the node's own search
    assert [n["id"] for n in answer.tree] == ["0", "0.1", "0.2"]
    assert [len(s.hits) > 0 for s in answer.searches] == [True] * 3


def test_two_hops_take_three_calls_where_the_last_answer_is_the_answer() -> None:
    first = split("Who wrote Salt Road?", "Where was {1} born?", combine="Last.", answer="unknown")
    # A refusal beside parts is no answer.
    recurse(first, direct("Orla Venn"), direct("Harwick"), answer="Harwick", calls=3)


@pytest.mark.parametrize(
    ("parts", "second", "k", "sees"),
    [
        (("Who?", "Where?"), direct("Not stated."), 5, ["Orla Venn | "]),
        # Those that they found, too.
        (("Dunmoor?", "Tollen?"), UNKNOWN, 1, ["Orla Venn |", "Harwick |", "Eastmere |"]),
    ],
)
def test_the_passages_are_read_where_no_child_answered(
    parts: Any, second: Any, k: int, sees: list[str]
) -> None:
    counts = {"no_child_answered": 1}
    recurse(split(*parts), UNKNOWN, second, read="Dunmoor", counts=counts, sees=sees, k=k)


def test_memo_answers_a_question_asked_before() -> None:
    for _ in range(2):  # it belongs to one question, not to the program
        answer, _ = recurse(
            split("Who wrote Salt Road?", "After {1}: where?"),
            direct("Orla Venn"),
            split("who wrote SALT ROAD", "Where is Harwick?"),
            direct("Dunmoor"),
            combined=["Harwick", "Dunmoor"],
            counts={"memo_hit": 1},
        )
        assert [n["answer"] for n in answer.tree if "SALT" in n["question"]] == ["Orla Venn"]


def test_child_equal_to_an_ancestor_is_refused() -> None:
    first = split(COUNTY.upper(), "Who wrote Salt Road?"), split("who wrote salt road", COUNTY)
    counts = {"cycle_refused": 3}
    _, lm = recurse(*first, read="Orla Venn", combined=["Dunmoor"], counts=counts)
    assert lm.signatures[2] == "AnswerFromContext"  # nothing left to split: read instead
    # One that becomes an ancestor by its placeholder, too.
    parts = split("Which town?", "Where is {1}?"), direct("Harwick")
    more: Any = {"question": "Where is Harwick?", "counts": {"cycle_refused": 1}}
    answer, _ = recurse(*parts, combined=["Dunmoor"], **more)
    assert answer.tree[2]["status"] == "open"


@pytest.mark.parametrize(("depth", "calls"), [(0, 1), (1, 4), (3, 22)])
def test_depth_limit_forces_leaves(depth: int, calls: int) -> None:
    program = RLM(shelf(), max_depth=depth, max_calls=100)
    answer, lm, ledger = ask(program, always_splits, COUNTY)
    assert len(lm.asked) == full_tree(2, depth) == calls
    assert max(node["depth"] for node in answer.tree) == depth
    assert ledger.path.calls == 2 * depth + 1


@pytest.mark.parametrize(
    ("knobs", "children"),
    [
        ({"strategy": "binary"}, 2),
        ({"strategy": "multi", "max_calls": 187}, 4),  # all that the script proposes
        ({"strategy": "multi", "max_children": 3, "max_calls": 187}, 3),
        ({"strategy": "adaptive"}, 2),  # 22 calls pay for a binary tree of depth 3
        ({"strategy": "adaptive", "max_depth": 1}, 4),
    ],
)
def test_strategies(knobs: dict[str, Any], children: int) -> None:
    answer, _, _ = ask(RLM(shelf(), **knobs), always_splits, COUNTY)
    assert sum(node["depth"] == 1 for node in answer.tree) == children


def test_a_decision_that_is_none_is_read_instead() -> None:
    for script in (never_parses, blank):
        answer, lm, _ = ask(RLM(shelf()), script)
        assert lm.signatures == ["RecursiveDecompose", "AnswerFromContext"]
        assert answer.answer == "noanswer"
    recurse(direct(COUNTY.lower()), read="Dunmoor", counts={"echoed_question": 1})
    answer, lm, _ = ask(RLM(shelf(), max_retrievals=0), plausible)
    assert (ended(answer)[1], lm.signatures) == ("budget", ["AnswerFromContext"])
